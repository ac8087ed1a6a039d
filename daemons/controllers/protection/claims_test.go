package protection

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/kinds/storage"
)

// The test covers which pods prevent the deletion of a claim.
// Proves S12.
func TestPodsThatBlockTheDeletionOfAClaim(t *testing.T) {
	claim := func(owner types.UID) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "p-v"}}
		if owner != "" {
			yes := true
			c.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Pod", Name: "p", UID: owner, Controller: &yes},
			}
		}
		return c
	}
	pod := func(node string, phase corev1.PodPhase, source corev1.VolumeSource) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}, Status: corev1.PodStatus{Phase: phase},
			Spec: corev1.PodSpec{
				NodeName: node,
				Volumes:  []corev1.Volume{{Name: "other"}, {Name: "v", VolumeSource: source}},
			}}
	}
	named := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	}
	own := corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	// going returns a pod that is being deleted with a grace period in seconds.
	going := func(seconds int64, source corev1.VolumeSource) *corev1.Pod {
		p, now := pod("n", corev1.PodRunning, source), metav1.Now()
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &seconds
		return p
	}
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		owner types.UID
		want  bool
	}{
		"a running pod":                    {pod("n", corev1.PodRunning, named("p-v")), "", true},
		"a pod that ended":                 {pod("n", corev1.PodSucceeded, named("p-v")), "", true},
		"a pod without a node":             {pod("", corev1.PodPending, named("p-v")), "", false},
		"a pod with another claim":         {pod("n", corev1.PodRunning, named("q")), "", false},
		"the pod it was made for":          {pod("n", corev1.PodRunning, own), "u", true},
		"the ended pod that it is of":      {pod("n", corev1.PodFailed, own), "u", true},
		"the pod it is of, ending":         {going(30, own), "u", true},
		"the pod it is of, that was ended": {going(0, own), "u", false},
		"a pod that was ended":             {going(0, named("p-v")), "", true},
		"a pod whose claim is another's":   {pod("n", corev1.PodRunning, own), "else", false},
		"a pod whose claim is of no pod's": {pod("n", corev1.PodRunning, own), "", false},
	} {
		if got := blocksDeletion(c.pod, claim(c.owner)); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestFinalizerChanges(t *testing.T) {
	now := metav1.Now()
	held := []string{"example.com/x", storage.ClaimProtection}
	for name, c := range map[string]struct {
		meta metav1.ObjectMeta
		want bool
	}{
		"held and staying": {metav1.ObjectMeta{Finalizers: held}, false},
		"held and going":   {metav1.ObjectMeta{Finalizers: held, DeletionTimestamp: &now}, true},
		"free and staying": {metav1.ObjectMeta{}, true},
		"free and going":   {metav1.ObjectMeta{DeletionTimestamp: &now, Finalizers: held[:1]}, false},
	} {
		if got := needsChange(&c.meta, storage.ClaimProtection); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := toggleFinalizer([]string{"a", storage.ClaimProtection}, storage.ClaimProtection); len(got) != 1 ||
		got[0] != "a" {
		t.Errorf("taken off: %q", got)
	}
	if got := toggleFinalizer([]string{"a"}, storage.ClaimProtection); len(got) != 2 {
		t.Errorf("put on: %q", got)
	}
}
