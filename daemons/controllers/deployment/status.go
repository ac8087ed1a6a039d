package deployment

import (
	"fmt"
	"math"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// outcome is the result of creating the new set, or the reason why nothing was rolled out.
type outcome struct {
	idleReason idleReason
	created    bool
	name       string // name of the set that could not be created
	failure    error
}

// idleReason is the reason why a sync rolls nothing out. The Progressing condition then keeps what an earlier rollout
// reported.
type idleReason string

const (
	idleScaling  idleReason = "scaling" // or paused
	idleDeleting idleReason = "deleting"
)

// newStatus returns the status that d should have, given its sets (newSet may be nil) and the result of creating the
// new set.
func newStatus(
	d *appsv1.Deployment,
	newSet *appsv1.ReplicaSet,
	sets []*appsv1.ReplicaSet,
	o outcome,
	now time.Time,
) appsv1.DeploymentStatus {
	s := appsv1.DeploymentStatus{
		ObservedGeneration:  d.Generation,
		CollisionCount:      d.Status.CollisionCount,
		TerminatingReplicas: terminatingPods(sets),
		Conditions:          append([]appsv1.DeploymentCondition(nil), d.Status.Conditions...),
	}
	var requests int64
	for _, set := range sets {
		requests += int64(replicasOrDefault(set.Spec.Replicas))
		s.Replicas += set.Status.Replicas
		s.ReadyReplicas += set.Status.ReadyReplicas
		s.AvailableReplicas += set.Status.AvailableReplicas
	}
	if newSet != nil {
		s.UpdatedReplicas = newSet.Status.Replicas
	}
	s.UnavailableReplicas = replicaCount(requests - int64(s.AvailableReplicas))

	_, unavailable := rolloutLimits(d)
	if s.AvailableReplicas >= replicasOrDefault(d.Spec.Replicas)-unavailable {
		setCondition(&s, appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable",
			"Deployment has minimum availability.", now)
	} else {
		setCondition(&s, appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable",
			"Deployment does "+
				"not have minimum availability.", now)
	}
	if o.idleReason == "" {
		setProgressing(d, &s, newSet, o, now)
		setReplicaFailure(&s, newSet, sets)
	} else if o.idleReason == idleScaling && hasDeadline(d) {
		setFromOutcome(d, newSet, o, findCondition(d.Status, appsv1.DeploymentProgressing), progressingSetter(&s, now))
	}
	return s
}

// terminatingPods returns the number of pods that are being deleted. It returns nil, for unknown, if a set's controller
// has observed the set but does not report the number.
func terminatingPods(sets []*appsv1.ReplicaSet) *int32 {
	var n int32
	for _, set := range sets {
		switch {
		case set.Status.TerminatingReplicas != nil:
			n += *set.Status.TerminatingReplicas
		case set.Status.ObservedGeneration > 0:
			return nil
		}
	}
	return &n
}

// isComplete reports whether the rollout is complete: every wanted pod is new and available, and no old pod is left.
func isComplete(d *appsv1.Deployment, s appsv1.DeploymentStatus) bool {
	wanted := replicasOrDefault(d.Spec.Replicas)
	return s.UpdatedReplicas == wanted && s.Replicas == wanted && s.AvailableReplicas == wanted &&
		s.ObservedGeneration >= d.Generation
}

// hasDeadline reports whether the deployment has a progress deadline.
func hasDeadline(d *appsv1.Deployment) bool {
	return d.Spec.ProgressDeadlineSeconds != nil && *d.Spec.ProgressDeadlineSeconds != math.MaxInt32
}

// setProgressing sets the Progressing condition: first what this sync did, then, if a rollout is under way, how far it
// is.
func setProgressing(d *appsv1.Deployment, s *appsv1.DeploymentStatus, newSet *appsv1.ReplicaSet, o outcome,
	now time.Time) {
	if !hasDeadline(d) {
		removeCondition(s, appsv1.DeploymentProgressing)
		return
	}
	set := progressingSetter(s, now)
	setFromOutcome(d, newSet, o, findCondition(d.Status, appsv1.DeploymentProgressing), set)
	if o.failure != nil {
		return
	}
	before := findCondition(*s, appsv1.DeploymentProgressing)
	if before != nil && before.Reason == reasonRolledOut && s.Replicas == s.UpdatedReplicas {
		return // the latest rollout is complete; later changes of its pods or of the wanted number are not a rollout
	}
	subject := fmt.Sprintf("Deployment %q", d.Name)
	if newSet != nil {
		subject = fmt.Sprintf("ReplicaSet %q", newSet.Name)
	}
	switch {
	case isComplete(d, *s):
		set(corev1.ConditionTrue, reasonRolledOut, subject+" has successfully progressed.")
	case hasProgressed(d.Status, *s):
		if before != nil {
			before.Reason = "" // each progress moves the update time, which set changes only with the reason
		}
		set(corev1.ConditionTrue, "ReplicaSetUpdated", subject+" is progressing.")
	case before != nil && isOverdue(d, before, now):
		set(corev1.ConditionFalse, reasonTimedOut, subject+" has timed out progressing.")
	}
}

// progressingSetter returns a function that sets the Progressing condition.
func progressingSetter(s *appsv1.DeploymentStatus, now time.Time) func(value corev1.ConditionStatus, reason,
	message string) {
	return func(value corev1.ConditionStatus, reason, message string) {
		setCondition(s, appsv1.DeploymentProgressing, value, reason, message, now)
	}
}

// setFromOutcome sets the Progressing condition from what was done to the deployment or failed. old is the
// current condition of the deployment.
func setFromOutcome(
	d *appsv1.Deployment,
	newSet *appsv1.ReplicaSet,
	o outcome,
	old *appsv1.DeploymentCondition,
	set func(corev1.ConditionStatus, string, string),
) {
	const paused = "DeploymentPaused"
	switch {
	case d.Spec.Paused && old != nil && old.Reason == reasonTimedOut: // a pause does not hide an exceeded deadline
	case d.Spec.Paused:
		set(corev1.ConditionUnknown, paused, "Deployment is paused")
	case o.failure != nil:
		set(corev1.ConditionFalse, "ReplicaSetCreateError", fmt.Sprintf("Failed to create new replica set %q: %v",
			o.name, o.failure))
	case o.created:
		set(corev1.ConditionTrue, "NewReplicaSetCreated", fmt.Sprintf("Created new replica set %q", newSet.Name))
	case old != nil && old.Reason == paused:
		set(corev1.ConditionUnknown, "DeploymentResumed", "Deployment is resumed")
	case old == nil && newSet != nil:
		set(corev1.ConditionTrue, "FoundNewReplicaSet", fmt.Sprintf("Found new replica set %q", newSet.Name))
	}
}

// Reasons of the Progressing condition that later syncs depend on.
const (
	reasonRolledOut = "NewReplicaSetAvailable"
	reasonTimedOut  = "ProgressDeadlineExceeded"
)

// hasProgressed reports whether a rollout moved between two statuses.
func hasProgressed(before, after appsv1.DeploymentStatus) bool {
	oldWas, oldIs := before.Replicas-before.UpdatedReplicas, after.Replicas-after.UpdatedReplicas
	return after.UpdatedReplicas > before.UpdatedReplicas || oldIs < oldWas ||
		after.ReadyReplicas > before.ReadyReplicas || after.AvailableReplicas > before.AvailableReplicas
}

func isOverdue(d *appsv1.Deployment, before *appsv1.DeploymentCondition, now time.Time) bool {
	if before.Reason == reasonRolledOut {
		return false
	}
	return before.Reason == reasonTimedOut ||
		now.Sub(before.LastUpdateTime.Time) >= time.Duration(*d.Spec.ProgressDeadlineSeconds)*time.Second
}

// setReplicaFailure sets the ReplicaFailure condition to the reason why a set cannot create or delete pods. The new set
// comes before the others.
func setReplicaFailure(s *appsv1.DeploymentStatus, newSet *appsv1.ReplicaSet, sets []*appsv1.ReplicaSet) {
	if newSet != nil {
		sets = append([]*appsv1.ReplicaSet{newSet}, sets...)
	}
	removeCondition(s, appsv1.DeploymentReplicaFailure)
	for _, rs := range sets {
		for _, c := range rs.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure {
				s.Conditions = append(
					s.Conditions,
					appsv1.DeploymentCondition{Type: appsv1.DeploymentReplicaFailure, Status: c.Status,
						LastTransitionTime: c.LastTransitionTime, LastUpdateTime: c.LastTransitionTime,
						Reason: c.Reason, Message: c.Message},
				)
				return
			}
		}
	}
}

func findCondition(s appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	return nil
}

// setCondition changes a condition. If the status and reason are the same, the message and times stay unchanged.
func setCondition(
	s *appsv1.DeploymentStatus,
	kind appsv1.DeploymentConditionType,
	value corev1.ConditionStatus,
	reason, message string,
	now time.Time,
) {
	c := findCondition(*s, kind)
	if c == nil {
		s.Conditions = append(s.Conditions, appsv1.DeploymentCondition{Type: kind})
		c = &s.Conditions[len(s.Conditions)-1]
	}
	if c.Status == value && c.Reason == reason {
		return
	}
	if c.Status != value {
		c.LastTransitionTime = metav1.NewTime(now)
	}
	c.Status, c.Reason, c.Message, c.LastUpdateTime = value, reason, message, metav1.NewTime(now)
}

func removeCondition(s *appsv1.DeploymentStatus, kind appsv1.DeploymentConditionType) {
	var kept []appsv1.DeploymentCondition
	for _, c := range s.Conditions {
		if c.Type != kind {
			kept = append(kept, c)
		}
	}
	s.Conditions = kept
}
