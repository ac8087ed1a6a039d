package admission

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api"
)

// A resize cannot exceed the limits that hold for new pods. Errors about claims refer to their requests.
// Proves S12.
func TestLimitsApplyToResizes(t *testing.T) {
	o := storedObjects()
	o.Put(
		&corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Namespace: "limited", Name: "claims"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypePersistentVolumeClaim,
				Max:  corev1.ResourceList{"storage": quantity.MustParse("5Gi")},
				Min:  corev1.ResourceList{"storage": quantity.MustParse("1Gi")}}}},
		},
	)
	claim := func(size string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "c"},
			Spec: corev1.PersistentVolumeClaimSpec{
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{"storage": quantity.MustParse(size)},
				}},
		}
	}
	for what, c := range map[string]struct {
		write   *api.Admission
		refused string
	}{
		"a resize within": {newWrite(root, "UPDATE", ":pods/resize", "limited", "p", newPod(withCPU("100m", "900m")),
			newPod(withCPU("100m", "500m"))), ""},
		"a resize beyond": {newWrite(root, "UPDATE", ":pods/resize", "limited", "p", newPod(withCPU("100m", "2")),
			newPod(withCPU("100m", "500m"))), "maximum cpu usage per Container is 1, but limit is 2"},
		"another change": {newWrite(root, "UPDATE", ":pods", "limited", "p", newPod(withCPU("100m", "2")),
			newPod(withCPU("100m", "2"))), ""},
		"a claim within": {newWrite(root, "CREATE", ":persistentvolumeclaims", "limited", "c", claim("2Gi"), nil), ""},
		"a claim too large": {newWrite(root, "CREATE", ":persistentvolumeclaims", "limited", "c", claim("10Gi"), nil),
			"maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 10Gi"},
		"a claim too small": {newWrite(root, "CREATE", ":persistentvolumeclaims", "limited", "c", claim("1Mi"), nil),
			"minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"},
	} {
		if err := runPlugins(t, o, c.write); (err == nil) != (c.refused == "") ||
			err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %v, want %q", what, err, c.refused)
		}
	}
}

// Pods of an account with a list of mountable Secrets may use only those.
// Proves S12.
func TestPodsUseOnlyMountableSecrets(t *testing.T) {
	o := storedObjects()
	o.Put(
		&corev1.ServiceAccount{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:   "shop",
				Name:        "strict",
				Annotations: map[string]string{mountableSecrets: "true"},
			},
			Secrets: []corev1.ObjectReference{
				{Name: "ours"},
			},
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}},
		},
	)
	secret := func(name string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: name},
				Key:                  "k",
			},
		}
	}
	volume := func(name string) []corev1.Volume {
		return []corev1.Volume{
			{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}},
		}
	}
	const because = " is not allowed because service account strict does not reference that "
	for what, c := range map[string]struct {
		change  func(*corev1.Pod)
		refused string
	}{
		"what is named": {func(p *corev1.Pod) {
			p.Spec.Volumes = volume("ours")
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: secret("ours")}}
		}, ""},
		"a volume": {func(p *corev1.Pod) { p.Spec.Volumes = volume("theirs") }, `volume with secret.secretName="theirs"` + because + "secret"},
		"a variable": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: secret("theirs")}}
		}, `container c with envVar A referencing secret.secretName="theirs"` + because + "secret"},
		"all variables": {func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "i",
				EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "theirs"}}}}}}
		}, `init container i with envFrom referencing secret.secretName="theirs"` + because + "secret"},
		"a registry's secret": {func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "other"}} }, `imagePullSecret "other"` + because + "imagePullSecret"},
		"another account": {func(p *corev1.Pod) {
			p.Spec.ServiceAccountName = "quiet"
			p.Spec.Volumes = volume("theirs")
		}, ""},
	} {
		p := newPod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "strict"; c.change(p) })
		if err := runPlugins(t, o,
			newWrite(root, "CREATE", ":pods", "shop", "p", p, nil)); (err == nil) != (c.refused == "") ||
			err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %v, want %q", what, err, c.refused)
		}
	}
	debugged := newPod(func(p *corev1.Pod) {
		p.Spec.ServiceAccountName = "strict"
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{
			{
				EphemeralContainerCommon: corev1.EphemeralContainerCommon{
					Name: "e",
					Env:  []corev1.EnvVar{{Name: "A", ValueFrom: secret("theirs")}},
				},
			},
		}
	})
	if err := runPlugins(t, o, newWrite(root, "UPDATE", ":pods/ephemeralcontainers", "shop", "p", debugged,
		newPod(nil))); err == nil ||
		!strings.Contains(err.Error(), "ephemeral container e with envVar A") {
		t.Errorf("an ephemeral container: %v", err)
	}
}
