package oracle

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

// Arguments are the plugin arguments of a KubeSchedulerConfiguration. A nil field is not set.
type Arguments struct {
	Fit      *configv1.NodeResourcesFitArgs
	Balanced *configv1.NodeResourcesBalancedAllocationArgs
	Nodes    *configv1.NodeAffinityArgs
	Pods     *configv1.InterPodAffinityArgs
	Spread   *configv1.PodTopologySpreadArgs
	Volumes  *configv1.VolumeBindingArgs
}

// MarshalConfig returns a KubeSchedulerConfiguration with these arguments.
func (a Arguments) MarshalConfig() ([]byte, error) {
	type given struct {
		Name string `json:"name"`
		Args any    `json:"args"`
	}
	list := []given{}
	add := func(name string, set bool, args any) {
		if set {
			list = append(list, given{name, args})
		}
	}
	add("NodeResourcesFit", a.Fit != nil, a.Fit)
	add("NodeResourcesBalancedAllocation", a.Balanced != nil, a.Balanced)
	add("NodeAffinity", a.Nodes != nil, a.Nodes)
	add("InterPodAffinity", a.Pods != nil, a.Pods)
	add("PodTopologySpread", a.Spread != nil, a.Spread)
	add("VolumeBinding", a.Volumes != nil, a.Volumes)
	return json.Marshal(map[string]any{
		"apiVersion": configv1.SchemeGroupVersion.String(), "kind": "KubeSchedulerConfiguration",
		"profiles": []any{map[string]any{"schedulerName": corev1.DefaultSchedulerName, "pluginConfig": list}},
	})
}

// interpolate returns the score at a utilization in percent. It interpolates between the neighbouring points, and takes
// the score of the outermost point beyond them. A point's best score is 10.
func interpolate(shape []configv1.UtilizationShapePoint, utilization int64) int64 {
	const step = maxScore / 10
	for i, p := range shape {
		if utilization > int64(p.Utilization) {
			continue
		}
		if i == 0 {
			return int64(p.Score) * step
		}
		low, from := int64(shape[i-1].Score)*step, int64(shape[i-1].Utilization)
		return low + (int64(p.Score)*step-low)*(utilization-from)/(int64(p.Utilization)-from)
	}
	return int64(shape[len(shape)-1].Score) * step
}

// utilization returns the share that is taken in percent, at most 100.
func utilization(taken, has int64) int64 {
	if has == 0 || taken > has {
		return 100
	}
	return taken * 100 / has
}

// matchesEnforcedAffinity reports whether the node affinity of the configuration admits a node.
func matchesEnforcedAffinity(c *simulation, node *corev1.Node) bool {
	a := c.Arguments.Nodes
	return a == nil || a.AddedAffinity == nil ||
		a.AddedAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil ||
		matchesTerms(a.AddedAffinity.RequiredDuringSchedulingIgnoredDuringExecution, node)
}

// preferences returns the preferred terms of the pod and of the configuration.
func (c *simulation) preferences(pod *corev1.Pod) []corev1.PreferredSchedulingTerm {
	var terms []corev1.PreferredSchedulingTerm
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		terms = append(terms, a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	if a := c.Arguments.Nodes; a != nil && a.AddedAffinity != nil {
		terms = append(terms, a.AddedAffinity.PreferredDuringSchedulingIgnoredDuringExecution...)
	}
	return terms
}
