package check

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Rollout checks the pods of Deployments during rollouts, event by event of one watch. The label "rollout" of a pod
// names its Deployment.
type Rollout struct {
	Most  int // maximum number of a Deployment's pods, without those that are ending: its replicas and maxSurge
	Least int // minimum of ready pods, once that number was reached: its replicas without maxUnavailable

	pods map[string]map[string]bool // Deployment to UIDs of its pods, and whether they are ready
	full map[string]bool            // Deployments that have reached Least
}

// See applies one event and returns the violations after it.
func (r *Rollout) See(p *corev1.Pod, deleted bool) []string {
	if r.pods == nil {
		r.pods, r.full = map[string]map[string]bool{}, map[string]bool{}
	}
	name := p.Labels["rollout"]
	of := r.pods[name]
	if of == nil {
		of = map[string]bool{}
		r.pods[name] = of
	}
	if deleted || p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed ||
		p.Status.Phase == corev1.PodSucceeded {
		delete(of, string(p.UID))
	} else {
		of[string(p.UID)] = ready(p)
	}
	able := 0
	for _, ok := range of {
		if ok {
			able++
		}
	}
	var found []string
	if len(of) > r.Most {
		found = append(
			found,
			fmt.Sprintf(
				"%s has %d pods at revision %s, where %d are the most",
				name,
				len(of),
				p.ResourceVersion,
				r.Most,
			),
		)
	}
	if r.full[name] && able < r.Least {
		found = append(
			found,
			fmt.Sprintf(
				"%s has %d ready pods at revision %s, where %d are the least",
				name,
				able,
				p.ResourceVersion,
				r.Least,
			),
		)
	}
	if able >= r.Least {
		r.full[name] = true
	}
	return found
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
