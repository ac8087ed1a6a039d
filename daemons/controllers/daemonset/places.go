package daemonset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"clusterctl/daemons/api"
)

// Places is what a set's nodes and pods are to each other. One look at a set makes it once, with each node and each pod
// looked at once: what to do and what the status says both follow from it.
type Places struct {
	nodes  []place
	strays []*corev1.Pod // on, or meant for, nodes that are not known
	wanted int           // nodes that should run a pod
}

type place struct {
	node      string
	run, stay bool // whether a pod should be started here, and whether one that is here may stay
	pods      []*corev1.Pod
}

// Survey returns the places of a set.
func Survey(set *appsv1.DaemonSet, nodes []*corev1.Node, pods []*corev1.Pod) Places {
	fits, at := fit(set), Places{nodes: make([]place, len(nodes))}
	index := make(map[string]*place, len(nodes))
	for i, node := range nodes {
		at.nodes[i].node = node.Name
		at.nodes[i].run, at.nodes[i].stay = fits(node)
		if at.nodes[i].run {
			at.wanted++
		}
		index[node.Name] = &at.nodes[i]
	}
	for _, pod := range pods {
		if place := index[target(pod)]; place != nil {
			place.pods = append(place.pods, pod)
		} else {
			at.strays = append(at.strays, pod)
		}
	}
	return at
}

// fit returns what reports whether a set's pod should be started on a node, and whether one that is there may stay.
func fit(set *appsv1.DaemonSet) func(*corev1.Node) (run, stay bool) {
	spec := &set.Spec.Template.Spec
	affinity := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *spec})
	tolerations := slices.Concat(spec.Tolerations, tolerations(spec))
	return func(node *corev1.Node) (run, stay bool) {
		if spec.NodeName != "" && spec.NodeName != node.Name {
			return false, false
		}
		if match, err := affinity.Match(node); err != nil || !match {
			return false, false
		}
		run, stay = true, true
		for _, taint := range node.Spec.Taints {
			tolerated := slices.ContainsFunc(
				tolerations,
				func(t corev1.Toleration) bool { return api.Tolerates(&t, &taint) },
			)
			switch {
			case tolerated:
			case taint.Effect == corev1.TaintEffectNoExecute:
				return false, false
			case taint.Effect == corev1.TaintEffectNoSchedule:
				run = false
			}
		}
		return run, stay
	}
}
