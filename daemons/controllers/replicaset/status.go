package replicaset

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"clusterctl/daemons/controllers/loop"
)

// Status returns the status that a set should have, given its active pods, all its pods, and the error of the last
// attempt to create or delete pods.
func Status(set *appsv1.ReplicaSet, active, all []*corev1.Pod, failure error, now time.Time) appsv1.ReplicaSetStatus {
	status := *set.Status.DeepCopy()
	status.ObservedGeneration = set.Generation
	status.Replicas, status.FullyLabeledReplicas, status.ReadyReplicas, status.AvailableReplicas = 0, 0, 0, 0
	template := labels.SelectorFromSet(set.Spec.Template.Labels)
	minReady := time.Duration(set.Spec.MinReadySeconds) * time.Second
	for _, pod := range active {
		status.Replicas++
		if template.Matches(labels.Set(pod.Labels)) {
			status.FullyLabeledReplicas++
		}
		if ready, _ := loop.IsReady(pod); ready {
			status.ReadyReplicas++
			if loop.IsAvailable(pod, minReady, now) {
				status.AvailableReplicas++
			}
		}
	}
	var terminating int32
	for _, pod := range all {
		if pod.DeletionTimestamp != nil && pod.Status.Phase != corev1.PodSucceeded &&
			pod.Status.Phase != corev1.PodFailed {
			terminating++
		}
	}
	status.TerminatingReplicas = &terminating
	status.Conditions = failureCondition(status.Conditions, set, active, failure, now)
	return status
}

func failureCondition(
	conditions []appsv1.ReplicaSetCondition,
	set *appsv1.ReplicaSet,
	active []*corev1.Pod,
	failure error,
	now time.Time,
) []appsv1.ReplicaSetCondition {
	var kept []appsv1.ReplicaSetCondition
	for _, c := range conditions {
		if c.Type != appsv1.ReplicaSetReplicaFailure {
			kept = append(kept, c)
		} else if failure != nil {
			return conditions // the first failure stays until it is resolved
		}
	}
	if failure == nil {
		return kept
	}
	reason := "FailedCreate"
	if int(replicasOrDefault(set)) < len(active) {
		reason = "FailedDelete"
	}
	return append(kept, appsv1.ReplicaSetCondition{
		Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue,
		Reason: reason, Message: failure.Error(), LastTransitionTime: metav1.NewTime(now),
	})
}

func sameStatus(a, b appsv1.ReplicaSetStatus) bool { return apiequality.Semantic.DeepEqual(a, b) }

func replicasOrDefault(set *appsv1.ReplicaSet) int32 {
	if set.Spec.Replicas == nil {
		return 1
	}
	return *set.Spec.Replicas
}
