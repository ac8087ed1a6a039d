package deployment

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// status returns what d's status should say, given its sets (newSet may be nil) and
// what went wrong with making the new set.
func status(d *appsv1.Deployment, newSet *appsv1.ReplicaSet, sets []*appsv1.ReplicaSet, failure error, now time.Time) appsv1.DeploymentStatus {
	s := appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation,
		CollisionCount:     d.Status.CollisionCount,
		Conditions:         append([]appsv1.DeploymentCondition(nil), d.Status.Conditions...),
	}
	var asked, terminating int32
	for _, set := range sets {
		asked += replicas(set.Spec.Replicas)
		s.Replicas += set.Status.Replicas
		s.ReadyReplicas += set.Status.ReadyReplicas
		s.AvailableReplicas += set.Status.AvailableReplicas
		if set.Status.TerminatingReplicas != nil {
			terminating += *set.Status.TerminatingReplicas
		}
	}
	s.TerminatingReplicas = &terminating
	if newSet != nil {
		s.UpdatedReplicas = newSet.Status.Replicas
	}
	s.UnavailableReplicas = max(asked-s.AvailableReplicas, 0)

	_, unavailable := limits(d)
	if s.AvailableReplicas >= replicas(d.Spec.Replicas)-unavailable {
		set(&s, appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable", "Deployment has minimum availability.", now, false)
	} else {
		set(&s, appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable", "Deployment does not have minimum availability.", now, false)
	}
	progress(d, &s, newSet, failure, now)
	failed(&s, sets, failure, now)
	return s
}

// complete says whether the rollout is done: every wanted pod is new and available,
// and no old one is left.
func complete(d *appsv1.Deployment, s appsv1.DeploymentStatus) bool {
	wanted := replicas(d.Spec.Replicas)
	return s.UpdatedReplicas == wanted && s.Replicas == wanted && s.AvailableReplicas == wanted && s.ObservedGeneration >= d.Generation
}

func progress(d *appsv1.Deployment, s *appsv1.DeploymentStatus, newSet *appsv1.ReplicaSet, failure error, now time.Time) {
	if d.Spec.ProgressDeadlineSeconds == nil || *d.Spec.ProgressDeadlineSeconds == math32 {
		remove(s, appsv1.DeploymentProgressing)
		return
	}
	was := find(d.Status, appsv1.DeploymentProgressing)
	subject := fmt.Sprintf("Deployment %q", d.Name)
	if newSet != nil {
		subject = fmt.Sprintf("ReplicaSet %q", newSet.Name)
	}
	switch {
	case d.Spec.Paused:
		if was == nil || was.Reason != "DeploymentPaused" {
			set(s, appsv1.DeploymentProgressing, corev1.ConditionUnknown, "DeploymentPaused", "Deployment is paused", now, true)
		}
	case failure != nil:
		set(s, appsv1.DeploymentProgressing, corev1.ConditionFalse, "ReplicaSetCreateError", fmt.Sprintf("Failed to create new replica set: %v", failure), now, true)
	case was != nil && was.Reason == "DeploymentPaused":
		set(s, appsv1.DeploymentProgressing, corev1.ConditionUnknown, "DeploymentResumed", "Deployment is resumed", now, true)
	case complete(d, *s):
		set(s, appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetAvailable", subject+" has successfully progressed.", now, was != nil && was.Reason != "NewReplicaSetAvailable")
	case was == nil:
		set(s, appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetCreated", "Created new replica set "+quotedName(newSet), now, true)
	case progressed(d.Status, *s):
		set(s, appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated", subject+" is progressing.", now, true)
	case overdue(d, was, now):
		set(s, appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded", subject+" has timed out progressing.", now, true)
	}
}

// progressed says whether a rollout moved between two looks at it.
func progressed(was, is appsv1.DeploymentStatus) bool {
	oldWas, oldIs := was.Replicas-was.UpdatedReplicas, is.Replicas-is.UpdatedReplicas
	return is.UpdatedReplicas > was.UpdatedReplicas || oldIs < oldWas ||
		is.ReadyReplicas > was.ReadyReplicas || is.AvailableReplicas > was.AvailableReplicas || is.ObservedGeneration > was.ObservedGeneration
}

func overdue(d *appsv1.Deployment, was *appsv1.DeploymentCondition, now time.Time) bool {
	if was.Reason == "NewReplicaSetAvailable" {
		return false
	}
	return was.Reason == "ProgressDeadlineExceeded" || now.Sub(was.LastUpdateTime.Time) >= time.Duration(*d.Spec.ProgressDeadlineSeconds)*time.Second
}

func failed(s *appsv1.DeploymentStatus, sets []*appsv1.ReplicaSet, failure error, now time.Time) {
	if failure != nil {
		set(s, appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", failure.Error(), now, false)
		return
	}
	for _, rs := range sets {
		for _, c := range rs.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
				set(s, appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, c.Reason, c.Message, now, false)
				return
			}
		}
	}
	remove(s, appsv1.DeploymentReplicaFailure)
}

// math32 as a progress deadline means none.
const math32 = 1<<31 - 1

func quotedName(set *appsv1.ReplicaSet) string {
	if set == nil {
		return ""
	}
	return fmt.Sprintf("%q", set.Name)
}

func find(s appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	return nil
}

// set changes a condition; with touch its update time moves even when nothing else does.
func set(s *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType, value corev1.ConditionStatus, reason, message string, now time.Time, touch bool) {
	c := find(*s, kind)
	if c == nil {
		s.Conditions = append(s.Conditions, appsv1.DeploymentCondition{Type: kind})
		c = &s.Conditions[len(s.Conditions)-1]
	}
	if c.Status != value {
		c.LastTransitionTime = metav1.NewTime(now)
	}
	if touch || c.Status != value || c.Reason != reason {
		c.LastUpdateTime = metav1.NewTime(now)
	}
	c.Status, c.Reason, c.Message = value, reason, message
}

func remove(s *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType) {
	var kept []appsv1.DeploymentCondition
	for _, c := range s.Conditions {
		if c.Type != kind {
			kept = append(kept, c)
		}
	}
	s.Conditions = kept
}
