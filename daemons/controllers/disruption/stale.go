package disruption

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/controllers/loop"
)

// staleAfter is how long a pod may have the condition DisruptionTarget without being deleted. After that, the
// disruption is assumed to be abandoned.
const staleAfter = 2 * time.Minute

// disruptionCondition returns a pod's condition DisruptionTarget if it can become stale. A condition that the kubelet
// set cannot, because there is no limit to how long the kubelet takes to end a pod.
func disruptionCondition(pod *corev1.Pod) *corev1.PodCondition {
	if !loop.IsActive(pod) {
		return nil
	}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue &&
			c.Reason != corev1.PodReasonTerminationByKubelet {
			return c
		}
	}
	return nil
}

// clearStale sets the condition DisruptionTarget to false on a pod that was not deleted in time.
func (d *controller) clearStale(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil
	}
	pod, err := d.pods.Pods(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	c := disruptionCondition(pod)
	if c == nil {
		return nil
	}
	if left := c.LastTransitionTime.Add(staleAfter).Sub(d.Now()); left > 0 {
		d.stalePods.AddAfter(key, left)
		return nil
	}
	// Conditions are merged, so reason and message must be set to null explicitly.
	_, err = loop.PatchPodStatus(ctx, d.Client, pod, map[string]any{"conditions": []map[string]any{{
		"type": corev1.DisruptionTarget, "status": corev1.ConditionFalse, "reason": nil, "message": nil,
		"lastTransitionTime": metav1.NewTime(d.Now()), "observedGeneration": pod.Generation}}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("say that pod %s is not to be disrupted: %w", key, err)
	}
	return nil
}
