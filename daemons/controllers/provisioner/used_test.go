package provisioner

import (
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api/directory"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// TestUsedVolumesAreAnnotated checks the annotation that prevents a reinstalled machine from creating an empty
// directory for a claim with data.
// Proves S30.
func TestUsedVolumesAreAnnotated(t *testing.T) {
	with := func(phase corev1.PodPhase, source corev1.VolumeSource) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p"},
			Status:     corev1.PodStatus{Phase: phase},
			Spec:       corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: source}}},
		}
	}
	claimed := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"it waits":                  {with(corev1.PodPending, claimed), ""},
		"it runs":                   {with(corev1.PodRunning, claimed), "true"},
		"it has done what it is to": {with(corev1.PodSucceeded, claimed), "true"},
		"a claim of its own, another": {with(corev1.PodRunning,
			corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}), ""},
		"another claim": {with(corev1.PodRunning,
			corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}}), ""},
	} {
		node := newNode(map[string]string{"kubernetes.io/hostname": "n"})
		node.Status.NodeInfo.MachineID = "m1"
		claim := newClaimOn("n")
		v, err := NewVolume(claim, newClass(), node)
		if err != nil {
			t.Fatal(err)
		}
		if v.Annotations[directory.MachineAnnotation] != "m1" {
			t.Errorf("%s: the machine is %q", name, v.Annotations[directory.MachineAnnotation])
		}
		client := fake.NewClientset(v)
		p := &controller{Context: loop.Context{Client: client, Log: slog.New(slog.DiscardHandler)}}
		p.usedClaims.mountedClaims(c.pod)
		if err := p.markUsed(t.Context(), claim, v); err != nil {
			t.Fatal(err)
		}
		got, err := client.CoreV1().PersistentVolumes().Get(t.Context(), v.Name, metav1.GetOptions{})
		if err != nil || got.Annotations[directory.UsedAnnotation] != c.want {
			t.Errorf("%s: it says %q, %v; want %q", name, got.Annotations[directory.UsedAnnotation], err, c.want)
		}
		if p.usedClaims.has("d/c") {
			t.Errorf("%s: it is noted again and again", name)
		}
	}
}
