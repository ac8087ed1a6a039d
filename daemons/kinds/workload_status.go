package kinds

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Controllers' reports about their workloads are validated as well. An impossible count is a mistake in a controller,
// and would mislead every client that waits for it.

// tally is a number in a status with its field name.
type tally struct {
	name string
	n    int64
}

func notNegativeCounts(path *field.Path, list ...tally) field.ErrorList {
	var errs field.ErrorList
	for _, c := range list {
		errs = append(errs, notNegative(c.n, path.Child(c.name))...)
	}
	return errs
}

// notMore rejects counts above most.
func notMore(path *field.Path, most int64, text string, list ...tally) field.ErrorList {
	var errs field.ErrorList
	for _, c := range list {
		if c.n > most {
			errs = append(errs, field.Invalid(path.Child(c.name), int32(c.n), text))
		}
	}
	return errs
}

// collisions requires that the collision count does not decrease, since earlier names would be tried again.
func collisions(is, was *int32, path *field.Path) field.ErrorList {
	errs := notNegative(int64(value(is)), path.Child("collisionCount"))
	if was != nil && value(is) < *was {
		errs = append(errs, field.Invalid(path.Child("collisionCount"), value(is), "cannot be decremented"))
	}
	return errs
}

const (
	aboveReplicas = "cannot be greater than status.replicas"
	aboveReady    = "cannot be greater than readyReplicas"
)

// replicaCounts checks the counts of all workloads: available replicas are ready, and ready ones are replicas.
func replicaCounts(
	path *field.Path,
	replicas, ready, available int32,
	aboveReadyText string,
	more ...tally,
) field.ErrorList {
	list := append([]tally{{"readyReplicas", int64(ready)}, {"availableReplicas", int64(available)}}, more...)
	errs := notNegativeCounts(path, append([]tally{{"replicas", int64(replicas)}}, list...)...)
	errs = append(errs, notMore(path, int64(replicas), aboveReplicas, list...)...)
	return append(errs, notMore(path, int64(ready), aboveReadyText, list[1])...)
}

func validateDeploymentStatus(d, old *appsv1.Deployment) field.ErrorList {
	path, s := field.NewPath("status"), &d.Status
	errs := notNegativeCounts(
		path,
		tally{"observedGeneration", s.ObservedGeneration},
		tally{"unavailableReplicas", int64(s.UnavailableReplicas)},
		tally{"terminatingReplicas", int64(value(s.TerminatingReplicas))},
	)
	errs = append(
		errs,
		replicaCounts(
			path,
			s.Replicas,
			s.ReadyReplicas,
			s.AvailableReplicas,
			aboveReady,
			tally{"updatedReplicas", int64(s.UpdatedReplicas)},
		)...)
	return append(errs, collisions(s.CollisionCount, old.Status.CollisionCount, path)...)
}

func validateReplicaSetStatus(r, _ *appsv1.ReplicaSet) field.ErrorList {
	path, s := field.NewPath("status"), &r.Status
	errs := notNegativeCounts(
		path,
		tally{"observedGeneration", s.ObservedGeneration},
		tally{"terminatingReplicas", int64(value(s.TerminatingReplicas))},
	)
	return append(
		errs,
		replicaCounts(
			path,
			s.Replicas,
			s.ReadyReplicas,
			s.AvailableReplicas,
			aboveReady,
			tally{"fullyLabeledReplicas", int64(s.FullyLabeledReplicas)},
		)...)
}

func validateReplicationControllerStatus(r, _ *corev1.ReplicationController) field.ErrorList {
	path, s := field.NewPath("status"), &r.Status
	errs := notNegativeCounts(path, tally{"observedGeneration", s.ObservedGeneration})
	return append(
		errs,
		replicaCounts(
			path,
			s.Replicas,
			s.ReadyReplicas,
			s.AvailableReplicas,
			aboveReady,
			tally{"fullyLabeledReplicas", int64(s.FullyLabeledReplicas)},
		)...)
}

func validateStatefulSetStatus(s, old *appsv1.StatefulSet) field.ErrorList {
	path, is := field.NewPath("status"), &s.Status
	errs := notNegativeCounts(path, tally{"observedGeneration", is.ObservedGeneration})
	errs = append(
		errs,
		replicaCounts(
			path,
			is.Replicas,
			is.ReadyReplicas,
			is.AvailableReplicas,
			"cannot be greater than status.readyReplicas",
			tally{
				"currentReplicas",
				int64(is.CurrentReplicas),
			},
			tally{"updatedReplicas", int64(is.UpdatedReplicas)},
		)...)
	return append(errs, collisions(is.CollisionCount, old.Status.CollisionCount, path)...)
}

func validateDaemonSetStatus(d, old *appsv1.DaemonSet) field.ErrorList {
	path, s := field.NewPath("status"), &d.Status
	errs := notNegativeCounts(
		path,
		tally{"currentNumberScheduled", int64(s.CurrentNumberScheduled)},
		tally{"numberMisscheduled", int64(s.NumberMisscheduled)},
		tally{"desiredNumberScheduled", int64(s.DesiredNumberScheduled)},
		tally{"numberReady", int64(s.NumberReady)},
		tally{
			"observedGeneration",
			s.ObservedGeneration,
		},
		tally{"updatedNumberScheduled", int64(s.UpdatedNumberScheduled)},
		tally{"numberAvailable", int64(s.NumberAvailable)},
		tally{"numberUnavailable", int64(s.NumberUnavailable)},
	)
	return append(errs, collisions(s.CollisionCount, old.Status.CollisionCount, path)...)
}

func validateBudgetStatus(b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	s := &b.Status
	return notNegativeCounts(
		field.NewPath("status"),
		tally{"disruptionsAllowed", int64(s.DisruptionsAllowed)},
		tally{"currentHealthy", int64(s.CurrentHealthy)},
		tally{"desiredHealthy", int64(s.DesiredHealthy)},
		tally{"expectedPods", int64(s.ExpectedPods)},
	)
}
