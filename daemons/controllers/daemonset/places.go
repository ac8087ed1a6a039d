package daemonset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"clusterctl/daemons/api"
)

// Places relates a set's pods to the nodes. Each sync computes it once and visits each node and pod once. Both the plan
// and the status use it.
type Places struct {
	nodes  []place
	strays []*corev1.Pod // on or meant for nodes that are not in the cache
	wanted int           // number of nodes that should run a pod
}

type place struct {
	node      string
	run, stay bool // whether the node should get a pod, and whether an existing pod may stay
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

// fit returns a function that reports whether a set's pod should be started on a node, and whether an existing pod may
// stay there.
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
