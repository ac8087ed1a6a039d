package plugin

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/scheduler/cluster"
)

var (
	nodeCordoned            = finalRefusal("NodeUnschedulable", "node(s) were unschedulable")
	nodeNameMismatch        = finalRefusal("NodeName", "node(s) didn't match the requested node name")
	taintsNotTolerated      = finalRefusal("TaintToleration", "node(s) had untolerated taint(s)")
	termsInConflict         = finalRefusal("NodeAffinity", "pod affinity terms conflict")
	affinityMismatch        = finalRefusal("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
	profileAffinityMismatch = finalRefusal("NodeAffinity", "node(s) didn't match scheduler-enforced node affinity")
	portInUse               = resolvableRefusal("NodePorts", "node(s) didn't have free ports for the requested pod "+
		"ports")
	featuresNotDeclared = finalRefusal("NodeDeclaredFeatures", "node(s) didn't match Pod's required features")

	// NodeNotNamed refuses nodes that a pod's required node affinity does not name, so that they are not checked.
	NodeNotNamed = finalRefusal("NodeAffinity", "node(s) didn't satisfy plugin(s) [NodeAffinity]")
)

// nodeUnschedulable refuses cordoned nodes for pods that do not tolerate the taint unschedulable.
func nodeUnschedulable(t *Task) Check {
	taint := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if isTaintTolerated(t.Pod.Shape, &taint) {
		return nil
	}
	return func(n *cluster.Node) *Refusal {
		if n.Unschedulable {
			return nodeCordoned
		}
		return nil
	}
}

// nodeName refuses all nodes except the one in spec.nodeName.
func nodeName(t *Task) Check {
	want := t.Pod.NodeName
	if want == "" {
		return nil
	}
	return func(n *cluster.Node) *Refusal {
		if n.Name != want {
			return nodeNameMismatch
		}
		return nil
	}
}

// taintToleration refuses nodes with a NoSchedule or NoExecute taint that the pod does not tolerate.
// daemons/api/tolerate.go decides what tolerates a taint, including the operators Lt and Gt.
func taintToleration(t *Task) Check {
	shape := t.Pod.Shape
	return func(n *cluster.Node) *Refusal {
		if !isNodeTolerated(shape, n) {
			return taintsNotTolerated
		}
		return nil
	}
}

func isNodeTolerated(s *cluster.Shape, n *cluster.Node) bool {
	for i := range n.Taints {
		taint := &n.Taints[i]
		if (taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute) &&
			!isTaintTolerated(s, taint) {
			return false
		}
	}
	return true
}

func isTaintTolerated(s *cluster.Shape, taint *corev1.Taint) bool {
	return slices.ContainsFunc(s.Tolerations, func(t corev1.Toleration) bool { return api.Tolerates(&t, taint) })
}

// taintScore counts the PreferNoSchedule taints that the pod does not tolerate.
func taintScore(t *Task, _ []*cluster.Node) Rate {
	if !t.HasPreferNoSchedule() {
		return func(*cluster.Node) int64 { return 0 }
	}
	shape := t.Pod.Shape
	return func(n *cluster.Node) int64 {
		var count int64
		for i := range n.Taints {
			if taint := &n.Taints[i]; taint.Effect == corev1.TaintEffectPreferNoSchedule &&
				!isTaintTolerated(shape, taint) {
				count++
			}
		}
		return count
	}
}

// termsConflict refuses pods whose required terms each demand two different node names.
func termsConflict(t *Task) *Refusal {
	if t.Pod.OnlyNamed && len(t.Pod.NodeNames) == 0 {
		return termsInConflict
	}
	return nil
}

// nodeAffinity refuses nodes that the pod's node selector, its required node affinity or the profile's excludes.
func nodeAffinity(t *Task) Check {
	shape, added := t.Pod.Shape, t.Args.AddedAffinity
	if !shape.HasRequired && added == nil {
		return nil
	}
	return func(n *cluster.Node) *Refusal {
		if added != nil && !added.Match(n.Match()) {
			return profileAffinityMismatch
		}
		if shape.HasRequired {
			if ok, err := shape.Required.Match(n.Match()); !ok || err != nil {
				return affinityMismatch
			}
		}
		return nil
	}
}

// nodeAffinityScore sums up the weights of the preferred terms that a node matches.
func nodeAffinityScore(t *Task, _ []*cluster.Node) Rate {
	own, added := t.Pod.Preferred, t.Args.AddedPreferred
	if own == nil && added == nil {
		return nil
	}
	return func(n *cluster.Node) int64 {
		var sum int64
		if own != nil {
			sum += own.Score(n.Match())
		}
		if added != nil {
			sum += added.Score(n.Match())
		}
		return sum
	}
}

// nodePorts refuses nodes on which one of the pod's host ports is in use.
func nodePorts(t *Task) Check {
	ports := t.Pod.HostPorts
	if len(ports) == 0 {
		return nil
	}
	return func(n *cluster.Node) *Refusal {
		if slices.ContainsFunc(ports, n.IsPortInUse) {
			return portInUse
		}
		return nil
	}
}

// portsHint reports whether a pod that ended had a host port that the pod needs.
func portsHint(t *Task, what ClusterEvent) bool {
	return what.Pod == nil || !what.StillOnNode && slices.ContainsFunc(t.Pod.HostPorts, func(want api.HostPort) bool {
		return slices.ContainsFunc(what.Pod.HostPorts, want.Conflicts)
	})
}

// declaredFeatures refuses nodes whose kubelets do not declare the features that the pod needs.
func declaredFeatures(t *Task) Check {
	needs := t.Pod.Features
	if len(needs) == 0 {
		return nil
	}
	return func(n *cluster.Node) *Refusal {
		if slices.ContainsFunc(needs, func(f string) bool { return !slices.Contains(n.Features, f) }) {
			return featuresNotDeclared
		}
		return nil
	}
}

// featuresHint reports whether a new or changed node declares the features that the pod needs.
func featuresHint(t *Task, what ClusterEvent) bool {
	check := declaredFeatures(t)
	return check == nil || what.Node == nil || check(what.Node) == nil
}

// Bounds for image sizes in bytes. largeImage is multiplied by the number of the pod's images.
const (
	smallImage = int64(23 << 20)
	largeImage = int64(1000 << 20)
)

// imageScore prefers nodes that already have the pod's large images. An image that few nodes have counts for less.
// Otherwise the first node to run something would get all further pods.
func imageScore(t *Task, _ []*cluster.Node) Rate {
	images, on, isKnown := t.Pod.Images, make([]float64, len(t.Pod.Images)), false
	for i, name := range images {
		current := t.NodesWithImage(name)
		on[i], isKnown = float64(current)/float64(t.Len()), isKnown || current > 0
	}
	if !isKnown {
		return nil
	}
	maximum := largeImage * int64(len(images))
	return func(n *cluster.Node) int64 {
		var sum int64
		for i, name := range images {
			sum += int64(float64(n.Images[name]) * on[i])
		}
		return MaxScore * (min(max(sum, smallImage), maximum) - smallImage) / (maximum - smallImage)
	}
}
