package daemonset

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"clusterctl/daemons/api"
)

// Placements relates a set's pods to the nodes. Each sync computes it once and visits each node and pod once. Both the
// plan and the status use it.
type Placements struct {
	perNode []nodePods
	strays  []*corev1.Pod // on or meant for nodes that are not in the cache
	desired int           // number of nodes that should run a pod
}

type nodePods struct {
	node               string
	shouldRun, mayStay bool // whether the node should get a pod, and whether an existing pod may stay
	pods               []*corev1.Pod
}

// NewPlacements returns the places of a set.
func NewPlacements(set *appsv1.DaemonSet, nodes []*corev1.Node, pods []*corev1.Pod) Placements {
	fits, at := nodeMatcher(set), Placements{perNode: make([]nodePods, len(nodes))}
	index := make(map[string]*nodePods, len(nodes))
	for i, node := range nodes {
		at.perNode[i].node = node.Name
		at.perNode[i].shouldRun, at.perNode[i].mayStay = fits(node)
		if at.perNode[i].shouldRun {
			at.desired++
		}
		index[node.Name] = &at.perNode[i]
	}
	for _, pod := range pods {
		if place := index[targetNode(pod)]; place != nil {
			place.pods = append(place.pods, pod)
		} else {
			at.strays = append(at.strays, pod)
		}
	}
	return at
}

// nodeMatcher returns a function that reports whether a set's pod should be started on a node, and whether an existing
// pod may stay there.
func nodeMatcher(set *appsv1.DaemonSet) func(*corev1.Node) (run, stay bool) {
	spec := &set.Spec.Template.Spec
	affinity := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *spec})
	tolerations := slices.Concat(spec.Tolerations, defaultTolerations(spec))
	return func(node *corev1.Node) (run, stay bool) {
		if spec.NodeName != "" && spec.NodeName != node.Name {
			return false, false
		}
		if match, err := affinity.Match(node); err != nil || !match {
			return false, false
		}
		run, stay = true, true
		for _, taint := range node.Spec.Taints {
			tolerated := slices.ContainsFunc(tolerations,
				func(t corev1.Toleration) bool { return api.Tolerates(&t, &taint) })
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
