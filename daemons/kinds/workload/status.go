package workload

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

// Controllers' reports about their workloads are validated as well. An impossible count is a mistake in a controller,
// and would mislead every client that waits for it.

// namedCount is a number in a status with its field name.
type namedCount struct {
	name string
	n    int64
}

func requireNotNegativeCounts(path *field.Path, list ...namedCount) field.ErrorList {
	var errs field.ErrorList
	for _, c := range list {
		errs = append(errs, validate.NotNegative(c.n, path.Child(c.name))...)
	}
	return errs
}

// requireAtMost rejects counts above maximum.
func requireAtMost(path *field.Path, maximum int64, text string, list ...namedCount) field.ErrorList {
	var errs field.ErrorList
	for _, c := range list {
		if c.n > maximum {
			errs = append(errs, field.Invalid(path.Child(c.name), int32(c.n), text))
		}
	}
	return errs
}

// validateCollisions requires that the collision count does not decrease, since earlier names would be tried again.
func validateCollisions(after, before *int32, path *field.Path) field.ErrorList {
	errs := validate.NotNegative(int64(value.OrZero(after)), path.Child("collisionCount"))
	if before != nil && value.OrZero(after) < *before {
		errs = append(errs, field.Invalid(path.Child("collisionCount"), value.OrZero(after), "cannot be decremented"))
	}
	return errs
}

const (
	aboveReplicas = "cannot be greater than status.replicas"
	aboveReady    = "cannot be greater than readyReplicas"
)

// validateReplicaCounts checks the counts of all workloads: available replicas are ready, and ready ones are replicas.
func validateReplicaCounts(
	path *field.Path,
	replicas, ready, available int32,
	aboveReadyText string,
	more ...namedCount,
) field.ErrorList {
	list := append([]namedCount{{"readyReplicas", int64(ready)}, {"availableReplicas", int64(available)}}, more...)
	errs := requireNotNegativeCounts(path, append([]namedCount{{"replicas", int64(replicas)}}, list...)...)
	errs = append(errs, requireAtMost(path, int64(replicas), aboveReplicas, list...)...)
	return append(errs, requireAtMost(path, int64(ready), aboveReadyText, list[1])...)
}

func validateDeploymentStatus(d, old *appsv1.Deployment) field.ErrorList {
	path, s := field.NewPath("status"), &d.Status
	errs := requireNotNegativeCounts(path, namedCount{"observedGeneration", s.ObservedGeneration},
		namedCount{"unavailableReplicas", int64(s.UnavailableReplicas)},
		namedCount{"terminatingReplicas", int64(value.OrZero(s.TerminatingReplicas))})
	errs = append(errs, validateReplicaCounts(path, s.Replicas, s.ReadyReplicas, s.AvailableReplicas, aboveReady,
		namedCount{"updatedReplicas", int64(s.UpdatedReplicas)})...)
	return append(errs, validateCollisions(s.CollisionCount, old.Status.CollisionCount, path)...)
}

func validateReplicaSetStatus(r, _ *appsv1.ReplicaSet) field.ErrorList {
	path, s := field.NewPath("status"), &r.Status
	errs := requireNotNegativeCounts(path, namedCount{"observedGeneration", s.ObservedGeneration},
		namedCount{"terminatingReplicas", int64(value.OrZero(s.TerminatingReplicas))})
	return append(errs, validateReplicaCounts(path, s.Replicas, s.ReadyReplicas, s.AvailableReplicas, aboveReady,
		namedCount{"fullyLabeledReplicas", int64(s.FullyLabeledReplicas)})...)
}

func validateReplicationControllerStatus(r, _ *corev1.ReplicationController) field.ErrorList {
	path, s := field.NewPath("status"), &r.Status
	errs := requireNotNegativeCounts(path, namedCount{"observedGeneration", s.ObservedGeneration})
	return append(errs, validateReplicaCounts(path, s.Replicas, s.ReadyReplicas, s.AvailableReplicas, aboveReady,
		namedCount{"fullyLabeledReplicas", int64(s.FullyLabeledReplicas)})...)
}

func validateStatefulSetStatus(s, old *appsv1.StatefulSet) field.ErrorList {
	path, current := field.NewPath("status"), &s.Status
	errs := requireNotNegativeCounts(path, namedCount{"observedGeneration", current.ObservedGeneration})
	errs = append(
		errs,
		validateReplicaCounts(
			path,
			current.Replicas,
			current.ReadyReplicas,
			current.AvailableReplicas,
			"cannot be greater than status.readyReplicas",
			namedCount{
				"currentReplicas",
				int64(current.CurrentReplicas),
			},
			namedCount{"updatedReplicas", int64(current.UpdatedReplicas)},
		)...)
	return append(errs, validateCollisions(current.CollisionCount, old.Status.CollisionCount, path)...)
}

func validateDaemonSetStatus(d, old *appsv1.DaemonSet) field.ErrorList {
	path, s := field.NewPath("status"), &d.Status
	errs := requireNotNegativeCounts(
		path,
		namedCount{"currentNumberScheduled", int64(s.CurrentNumberScheduled)},
		namedCount{"numberMisscheduled", int64(s.NumberMisscheduled)},
		namedCount{"desiredNumberScheduled", int64(s.DesiredNumberScheduled)},
		namedCount{"numberReady", int64(s.NumberReady)},
		namedCount{
			"observedGeneration",
			s.ObservedGeneration,
		},
		namedCount{"updatedNumberScheduled", int64(s.UpdatedNumberScheduled)},
		namedCount{"numberAvailable", int64(s.NumberAvailable)},
		namedCount{"numberUnavailable", int64(s.NumberUnavailable)},
	)
	return append(errs, validateCollisions(s.CollisionCount, old.Status.CollisionCount, path)...)
}
