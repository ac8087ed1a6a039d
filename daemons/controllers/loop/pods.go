package loop

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// IsReady reports whether a pod's Ready condition is true, and since when.
func IsReady(pod *corev1.Pod) (bool, time.Time) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	return false, time.Time{}
}

// IsAvailable reports whether a pod has been ready for at least minReady.
func IsAvailable(pod *corev1.Pod, minReady time.Duration, now time.Time) bool {
	ready, since := IsReady(pod)
	return ready && (minReady == 0 || !since.IsZero() && !since.Add(minReady).After(now))
}

// UntilAvailable returns how long it takes until the next of the pods has been ready for minReady. It returns zero if
// there is no such pod. No event marks that time, so each sync must set a timer for it, also after a change of the
// leader.
func UntilAvailable(pods []*corev1.Pod, minReady time.Duration, now time.Time) (minimum time.Duration) {
	for _, pod := range pods {
		ready, since := IsReady(pod)
		if left := since.Add(minReady).Sub(now); ready && left > 0 && (minimum == 0 || left < minimum) {
			minimum = left
		}
	}
	return minimum
}

// IsActive reports whether a pod has not finished and is not being deleted.
func IsActive(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed &&
		pod.DeletionTimestamp == nil
}

// PodFromTemplate returns a new pod that owner controls, built from its template.
func PodFromTemplate(template *corev1.PodTemplateSpec, owner metav1.Object, kind schema.GroupVersionKind) *corev1.Pod {
	copied := template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: owner.GetNamespace(), GenerateName: generateName(owner.GetName()),
			Labels: copied.Labels, Annotations: copied.Annotations, Finalizers: copied.Finalizers,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
		},
		Spec: copied.Spec,
	}
	return pod
}

// generateName leaves room for the random suffix within the 63 characters of a host name.
func generateName(owner string) string {
	const limit = 63 - 5 - 1
	if len(owner) > limit {
		owner = owner[:limit]
	}
	return owner + "-"
}

// Burst is the maximum number of pods that a sync of a controller creates, and the maximum that it deletes. Clients
// choose the number of replicas. The limit keeps lists short, lets other objects be reconciled, and lets the controller
// notice a deletion in between.
const Burst = 500

// InBatches calls f n times, in batches that double from one while all calls succeed. A quota or a broken webhook is
// then hit once and not a thousand times. It stops before a batch for which still returns false. It returns how many
// calls were made and their errors.
func InBatches(ctx context.Context, n int, still func() bool, f func(ctx context.Context, i int) error) (int, error) {
	const widest = 64
	done := 0
	for batch := 1; done < n && still(); batch = min(batch*2, widest) {
		size := min(batch, n-done)
		errs := make([]error, size)
		var wg sync.WaitGroup
		for i := range size {
			wg.Go(func() { errs[i] = f(ctx, done+i) })
		}
		wg.Wait()
		done += size
		if err := errors.Join(errs...); err != nil {
			return done, err
		}
	}
	return done, nil
}

// HasSameSpec reports whether an object is still the same object with the same spec, and is not being deleted.
func HasSameSpec(after, before metav1.Object) bool {
	return after.GetUID() == before.GetUID() && after.GetGeneration() == before.GetGeneration() &&
		after.GetDeletionTimestamp() == nil
}
