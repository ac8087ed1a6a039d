package admission

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/apifake"
)

// TestChangesIntoAQuotaScopeConsumeQuota changes objects so that they enter the scope of another quota.
// Proves S12.
func TestChangesIntoAQuotaScopeConsumeQuota(t *testing.T) {
	quota := func(name string, hard corev1.ResourceList, scopes ...corev1.ResourceQuotaScope) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec: corev1.ResourceQuotaSpec{Hard: hard, Scopes: scopes}}
	}
	classes := quota("gold", corev1.ResourceList{"requests.storage": apiresource.MustParse("10Gi")})
	classes.Spec.ScopeSelector = &corev1.ScopeSelector{
		MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
			{ScopeName: corev1.ResourceQuotaScopeVolumeAttributesClass, Operator: corev1.ScopeSelectorOpIn,
				Values: []string{"gold"}}}}
	pod := func(name string, deadline *int64, cpu string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec: corev1.PodSpec{ActiveDeadlineSeconds: deadline, Containers: []corev1.Container{{Name: "c"}}}}
		if cpu != "" {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
				corev1.ResourceCPU: apiresource.MustParse(cpu)}
		}
		return p
	}
	claim := func(class, size string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c"},
			Spec: corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: ptr.To(class),
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: apiresource.MustParse(size)}}}}
	}
	o := apifake.New(
		quota("ending", corev1.ResourceList{"pods": apiresource.MustParse("1"),
			"requests.cpu": apiresource.MustParse("1")}, corev1.ResourceQuotaScopeTerminating),
		quota("staying", corev1.ResourceList{"pods": apiresource.MustParse("2")},
			corev1.ResourceQuotaScopeNotTerminating),
		classes, pod("a", nil, "500m"), pod("b", nil, "500m"))
	ask := func(kind string, sub string, old, now runtime.Object) error {
		a := &api.Admission{Operation: "UPDATE", Namespace: "shop", Name: "x", Subresource: sub,
			Resource: schema.GroupVersionResource{Version: "v1", Resource: kind}, Object: now, Old: old}
		return NewQuota(o).Validate(t.Context(), a)
	}
	for name, c := range map[string]struct {
		resource string
		sub      string
		old, now runtime.Object
		want     string
	}{
		"a deadline for a pod that fits": {"pods", "", pod("a", nil, "500m"),
			pod("a", ptr.To(int64(60)), "500m"), ""},
		"a deadline for a pod that is too much": {"pods", "", pod("a", nil, "1500m"),
			pod("a", ptr.To(int64(60)), "1500m"),
			"exceeded quota: ending, requested: requests.cpu=1500m, used: requests.cpu=0, limited: requests.cpu=1"},
		"a deadline for a pod without requests": {"pods", "", pod("a", nil, ""), pod("a", ptr.To(int64(60)), ""),
			"failed quota: ending: must specify requests.cpu for: c"},
		"a shorter deadline": {"pods", "", pod("a", ptr.To(int64(90)), "1500m"),
			pod("a", ptr.To(int64(60)), "1500m"), ""},
		"a label": {"pods", "", pod("a", nil, "1500m"), pod("a", nil, "1500m"), ""},
		"a status": {"pods", "status", pod("a", nil, "1500m"),
			pod("a", ptr.To(int64(60)), "1500m"), ""},
		"a claim of another class": {"persistentvolumeclaims", "", claim("silver", "20Gi"),
			claim("gold", "20Gi"), "exceeded quota: gold, requested: requests.storage=20Gi"},
		"a claim of another class that fits": {"persistentvolumeclaims", "", claim("silver", "5Gi"),
			claim("gold", "5Gi"), ""},
		"a claim that leaves the class": {"persistentvolumeclaims", "", claim("gold", "20Gi"),
			claim("silver", "20Gi"), ""},
	} {
		if err := ask(c.resource, c.sub, c.old, c.now); (err == nil) != (c.want == "") || err != nil &&
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	// The quota allows one pod: once it is used, the next one is rejected.
	o.Put(pod("b", ptr.To(int64(60)), "500m"))
	if err := ask("pods", "", pod("a", nil, "500m"), pod("a", ptr.To(int64(60)), "500m")); err == nil ||
		!strings.Contains(err.Error(), "requested: pods=1, used: pods=1, limited: pods=1") {
		t.Errorf("a second pod: %v", err)
	}
}
