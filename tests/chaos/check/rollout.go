package check

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Rollout judges the pods of deployments while these are rolled out, event by event of one watch.
// A deployment is what its pods' label "rollout" names.
type Rollout struct {
	Most  int // pods of a deployment at once, those that are ending left out: its replicas and maxSurge
	Least int // that are ready, once it had as many: its replicas without maxUnavailable

	pods map[string]map[string]bool // deployment to UIDs of its pods, and whether they are ready
	full map[string]bool            // deployments that have had enough
}

// See takes one event and returns what is wrong after it.
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
