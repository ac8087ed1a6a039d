package dev

import (
	"context"
	"fmt"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func replicationController(name string, replicas int32) *corev1.ReplicationController {
	labels := map[string]string{"name": name}
	return &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ReplicationControllerSpec{
			Replicas: &replicas, Selector: labels,
			Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()}},
	}
}

// Proves S19.
func TestAReplicationControllerKeepsItsPods(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	all := sharedClient.CoreV1().ReplicationControllers(ns)
	orphan := must[*corev1.Pod](t)(sharedClient.CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:   "orphan",
			Labels: map[string]string{"name": "r"},
		}, Spec: podSpec()}, metav1.CreateOptions{}))
	r := must[*corev1.ReplicationController](t)(all.Create(t.Context(), replicationController("r", 3),
		metav1.CreateOptions{}))
	ready := func(n int32) {
		t.Helper()
		waitFor(t, fmt.Sprintf("%d pods", n), func(ctx context.Context) (bool, any) {
			now := must[*corev1.ReplicationController](t)(all.Get(ctx, "r", metav1.GetOptions{}))
			s := now.Status
			return s.ObservedGeneration == now.Generation && s.Replicas == n && s.ReadyReplicas == n &&
				s.AvailableReplicas == n &&
				s.FullyLabeledReplicas == n, s
		})
	}
	ready(3)
	pod := must[*corev1.Pod](t)(sharedClient.CoreV1().Pods(ns).Get(t.Context(), "orphan", metav1.GetOptions{}))
	if pod.UID != orphan.UID || !metav1.IsControlledBy(pod, r) || len(podsOf(t, ns, "name=r")) != 3 {
		t.Errorf("the orphan is owned by %v, among %d pods", pod.OwnerReferences, len(podsOf(t, ns, "name=r")))
	}
	// The scale subresource has the same effect as the spec.
	scale := must[*autoscalingv1.Scale](t)(all.GetScale(t.Context(), "r", metav1.GetOptions{}))
	if scale.Spec.Replicas != 3 || scale.Status.Selector != "name=r" {
		t.Errorf("its scale is %+v", scale)
	}
	scale.Spec.Replicas = 1
	must[*autoscalingv1.Scale](t)(all.UpdateScale(t.Context(), "r", scale, metav1.UpdateOptions{}))
	ready(1)
	// A deleted pod is created again, and a relabelled pod is released and replaced.
	left := podsOf(t, ns, "name=r")[0]
	if _, err := sharedClient.CoreV1().Pods(ns).Patch(t.Context(), left.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"name":"free"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the release", func(ctx context.Context) (bool, any) {
		pod, err := sharedClient.CoreV1().Pods(ns).Get(ctx, left.Name, metav1.GetOptions{})
		return err == nil && len(pod.OwnerReferences) == 0 && len(podsOf(t, ns, "name=r")) == 1, err
	})
	ready(1)
	// When nothing changes, the controller writes nothing. The same code runs other controllers too.
	round := 0
	waitFor(t, "that its status is not written over and over", func(ctx context.Context) (bool, any) {
		version := must[*corev1.ReplicationController](t)(all.Get(ctx, "r", metav1.GetOptions{})).ResourceVersion
		round++
		other := fmt.Sprintf("other-%d", round)
		must[*corev1.ReplicationController](t)(all.Create(ctx, replicationController(other, 2), metav1.CreateOptions{}))
		waitFor(t, "another", func(ctx context.Context) (bool, any) {
			now := must[*corev1.ReplicationController](t)(all.Get(ctx, other, metav1.GetOptions{}))
			return now.Status.ReadyReplicas == 2, now.Status
		})
		now := must[*corev1.ReplicationController](t)(all.Get(ctx, "r", metav1.GetOptions{})).ResourceVersion
		return now == version, version + ", then " + now
	})
}

// A quota that prevents new pods is reported in a condition, which is removed with the quota.
// Proves S19.
func TestReplicationControllersReportWhyPodsAreMissing(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	all := sharedClient.CoreV1().ReplicationControllers(ns)
	must[*corev1.ResourceQuota](t)(sharedClient.CoreV1().ResourceQuotas(ns).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{
			Name: "two",
		}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2")}}},
		metav1.CreateOptions{}))
	waitFor(t, "the quota", func(ctx context.Context) (bool, any) {
		q := must[*corev1.ResourceQuota](t)(sharedClient.CoreV1().ResourceQuotas(ns).Get(ctx, "two",
			metav1.GetOptions{}))
		hard := q.Status.Hard[corev1.ResourcePods]
		return hard.Value() == 2, q.Status
	})
	must[*corev1.ReplicationController](t)(all.Create(t.Context(), replicationController("r", 3),
		metav1.CreateOptions{}))
	failing := func(want bool) {
		t.Helper()
		waitFor(t, fmt.Sprintf("the condition: %t", want), func(ctx context.Context) (bool, any) {
			now := must[*corev1.ReplicationController](t)(all.Get(ctx, "r", metav1.GetOptions{}))
			has := false
			for _, c := range now.Status.Conditions {
				has = has ||
					c.Type == corev1.ReplicationControllerReplicaFailure && c.Status == corev1.ConditionTrue &&
						c.Reason == "FailedCreate"
			}
			return has == want && now.Status.Replicas == 2, now.Status
		})
	}
	failing(true)
	if _, err := all.Patch(t.Context(), "r", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	failing(false)
}
