package write

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/kinds"
)

// TestEveryKindsDefaultPropagationPolicy checks, for every kind, the finalizers after deletions with and without a
// propagation policy.
// Proves S12.
func TestEveryKindsDefaultPropagationPolicy(t *testing.T) {
	const orphan, foreground, other = metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents,
		"example.com/f"
	// Upstream's defaults that differ from background deletion.
	usual := map[string]string{"replicationcontrollers": orphan, "batch/jobs": orphan}
	without := []string{"events", "events.k8s.io/events"}
	policy := func(p metav1.DeletionPropagation) *metav1.DeleteOptions {
		return &metav1.DeleteOptions{PropagationPolicy: &p}
	}
	for _, k := range kinds.All() {
		name := k.Resource
		if k.GVK.Group != "" {
			name = k.GVK.Group + "/" + name
		}
		unspecified := []string{other}
		if f := usual[name]; f != "" {
			unspecified = append(unspecified, f)
		}
		for _, c := range []struct {
			what    string
			current []string
			o       *metav1.DeleteOptions
			want    []string
		}{
			{"no policy", []string{other}, &metav1.DeleteOptions{}, unspecified},
			{"no policy, orphaning already", []string{orphan, other}, &metav1.DeleteOptions{}, []string{orphan, other}},
			{"no policy, in the foreground already", []string{foreground, other}, &metav1.DeleteOptions{},
				[]string{foreground, other}},
			{"Background", []string{other, orphan}, policy(metav1.DeletePropagationBackground), []string{other}},
			{"Orphan", []string{other}, policy(metav1.DeletePropagationOrphan), []string{other, orphan}},
			{"Foreground", []string{other}, policy(metav1.DeletePropagationForeground), []string{other, foreground}},
			{"orphanDependents: true", []string{other}, &metav1.DeleteOptions{OrphanDependents: ptr.To(true)},
				[]string{other, orphan}},
			{"orphanDependents: false", []string{other}, &metav1.DeleteOptions{OrphanDependents: ptr.To(false)},
				[]string{other}},
		} {
			want := c.want
			if slices.Contains(without, name) {
				want = []string{other}
			}
			if got := deletionFinalizers(c.current, c.o, k.Dependents); !slices.Equal(got, want) {
				t.Errorf("%s, %s: %v, want %v", name, c.what, got, want)
			}
		}
		delete(usual, name)
	}
	if len(usual) > 0 {
		t.Errorf("there are no kinds %v", usual)
	}
}
