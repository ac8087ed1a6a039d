package check

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Rollout checks the pods of Deployments during rollouts, event by event of one watch. The label "rollout" of a pod
// names its Deployment.
type Rollout struct {
	MaxPods  int // maximum number of a Deployment's pods, without those that are ending: its replicas and maxSurge
	MinReady int // minimum of ready pods, once that number was reached: its replicas without maxUnavailable

	pods     map[string]map[string]bool // Deployment to UIDs of its pods, and whether they are ready
	complete map[string]bool            // Deployments that have reached MinReady
}

// Apply applies one event and returns the violations after it.
func (r *Rollout) Apply(p *corev1.Pod, deleted bool) []string {
	if r.pods == nil {
		r.pods, r.complete = map[string]map[string]bool{}, map[string]bool{}
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
		of[string(p.UID)] = isReady(p)
	}
	able := 0
	for _, ok := range of {
		if ok {
			able++
		}
	}
	var found []string
	if len(of) > r.MaxPods {
		found = append(found, fmt.Sprintf("%s has %d pods at revision %s, where %d are the most", name, len(of),
			p.ResourceVersion, r.MaxPods))
	}
	if r.complete[name] && able < r.MinReady {
		found = append(found, fmt.Sprintf("%s has %d ready pods at revision %s, where %d are the least", name, able,
			p.ResourceVersion, r.MinReady))
	}
	if able >= r.MinReady {
		r.complete[name] = true
	}
	return found
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
