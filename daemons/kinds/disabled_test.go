package kinds

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// An object that has a field of a disabled feature, from when the feature was enabled, keeps it and may change it.
func TestDisabledFieldsInUseAreKept(t *testing.T) {
	with := func(group string) *appsv1.Deployment {
		d := &appsv1.Deployment{}
		if group != "" {
			d.Spec.Template.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
		}
		return d
	}
	for name, c := range map[string]struct {
		old  *appsv1.Deployment
		want string
	}{
		"new": {nil, ""}, "added": {with(""), ""}, "changed": {with("other"), "g"}, "kept": {with("g"), "g"},
	} {
		obj := with("g")
		if c.old == nil {
			ClearDisabled(obj, nil)
		} else {
			ClearDisabled(obj, c.old)
		}
		got := ""
		if g := obj.Spec.Template.Spec.SchedulingGroup; g != nil {
			got = *g.PodGroupName
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	lease := &coordinationv1.Lease{
		Spec: coordinationv1.LeaseSpec{
			Strategy:        new(coordinationv1.OldestEmulationVersion),
			PreferredHolder: new("you"),
		},
	}
	ClearDisabled(lease,
		&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{Strategy: new(coordinationv1.OldestEmulationVersion)}})
	if lease.Spec.Strategy == nil || lease.Spec.PreferredHolder != nil {
		t.Errorf("each field of a feature is looked at by itself: %+v", lease.Spec)
	}
	old := &corev1.PersistentVolumeClaim{
		Spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{Kind: "X", Name: "x"}},
	}
	claim := old.DeepCopy()
	if ClearDisabled(claim, nil); claim.Spec.DataSourceRef == nil {
		t.Error("a source in the claim's own namespace is dropped")
	}
}

// Every write of a pod checks all disabled fields.
func TestClearingDisabledFieldsIsCheap(t *testing.T) {
	pod, old := &corev1.Pod{}, &corev1.Pod{}
	if n := testing.AllocsPerRun(100, func() { ClearDisabled(pod, old) }); n > 0 {
		t.Errorf("%v allocations for each write of a pod", n)
	}
}
