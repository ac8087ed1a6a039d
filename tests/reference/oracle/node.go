package oracle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxScore is the best score of a plugin on a node.
const maxScore = 100

// nodeUnschedulable refuses cordoned nodes to pods that do not tolerate the unschedulable taint.
func nodeUnschedulable(_ *simulation, pod *corev1.Pod, node *corev1.Node) *filterRefusal {
	taint := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if node.Spec.Unschedulable && !tolerates(pod, taint) {
		return newUnresolvable("node(s) were unschedulable")
	}
	return nil
}

// nodeName refuses all nodes except the node that the pod names.
func nodeName(_ *simulation, pod *corev1.Pod, node *corev1.Node) *filterRefusal {
	if pod.Spec.NodeName != "" && pod.Spec.NodeName != node.Name {
		return newUnresolvable("node(s) didn't match the requested node name")
	}
	return nil
}

// taintToleration refuses nodes with a taint of effect NoSchedule or NoExecute that the pod does not tolerate.
func taintToleration(_ *simulation, pod *corev1.Pod, node *corev1.Node) *filterRefusal {
	if !toleratesNode(pod, node) {
		return newUnresolvable("node(s) had untolerated taint(s)")
	}
	return nil
}

func toleratesNode(pod *corev1.Pod, node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		keepsOff := taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
		if keepsOff && !tolerates(pod, taint) {
			return false
		}
	}
	return true
}

// taintTolerationScore gives the best score to nodes with the fewest PreferNoSchedule taints that the pod does not
// tolerate.
func taintTolerationScore(_ *simulation, pod *corev1.Pod, nodes []*corev1.Node) []int64 {
	scores := make([]int64, len(nodes))
	for i, node := range nodes {
		for _, taint := range node.Spec.Taints {
			if taint.Effect == corev1.TaintEffectPreferNoSchedule && !tolerates(pod, taint) {
				scores[i]++
			}
		}
	}
	normalizeScores(scores)
	for i := range scores {
		scores[i] = maxScore - scores[i]
	}
	return scores
}

// normalizeScores scales the scores so that the highest score is maxScore.
func normalizeScores(scores []int64) {
	highest := int64(0)
	for _, s := range scores {
		highest = max(highest, s)
	}
	for i := range scores {
		if highest > 0 {
			scores[i] = maxScore * scores[i] / highest
		}
	}
}

// affinityTermsConflict refuses pods whose required terms all demand two different names of the node at once.
func affinityTermsConflict(_ *simulation, pod *corev1.Pod) *filterRefusal {
	if names, only := wantedNames(pod); only && len(names) == 0 {
		return newUnresolvable("pod affinity terms conflict")
	}
	return nil
}

// wantedNames returns the node names that the required terms' metadata.name admits, and whether all terms name a node.
func wantedNames(pod *corev1.Pod) (names []string, only bool) {
	required := requiredNodeAffinity(pod)
	if required == nil || len(required.NodeSelectorTerms) == 0 {
		return nil, false
	}
	for _, term := range required.NodeSelectorTerms {
		var ofTerm []string
		named := false
		for _, r := range term.MatchFields {
			if r.Key != metav1.ObjectNameField || r.Operator != corev1.NodeSelectorOpIn {
				continue
			}
			if !named {
				ofTerm, named = slices.Clone(r.Values), true
			} else {
				ofTerm = slices.DeleteFunc(ofTerm, func(n string) bool { return !slices.Contains(r.Values, n) })
			}
		}
		if !named {
			return nil, false
		}
		names = append(names, ofTerm...)
	}
	return names, true
}

// nodeAffinity refuses nodes that the configuration's affinity or the pod's nodeSelector or required node affinity does
// not admit.
func nodeAffinity(c *simulation, pod *corev1.Pod, node *corev1.Node) *filterRefusal {
	if !matchesEnforcedAffinity(c, node) {
		return newUnresolvable("node(s) didn't match scheduler-enforced node affinity")
	}
	if !admitsNode(pod, node) {
		return newUnresolvable("node(s) didn't match Pod's node affinity/selector")
	}
	return nil
}

// excludedByName refuses nodes whose names the pod's required node affinity excludes. It precedes all filters, because
// upstream filters only the nodes that are named.
func excludedByName(pod *corev1.Pod, node *corev1.Node) *filterRefusal {
	if names, only := wantedNames(pod); only && !slices.Contains(names, node.Name) {
		r := newUnresolvable("node(s) didn't satisfy plugin(s) [NodeAffinity]")
		r.plugin = "NodeAffinity"
		return r
	}
	return nil
}

// nodeAffinityScore returns the sum of the weights of the preferred terms that match.
func nodeAffinityScore(c *simulation, pod *corev1.Pod, nodes []*corev1.Node) []int64 {
	terms := c.preferences(pod)
	if len(terms) == 0 {
		return nil
	}
	scores := make([]int64, len(nodes))
	for i, node := range nodes {
		for _, term := range terms {
			if matchesTerm(term.Preference, node) {
				scores[i] += int64(term.Weight)
			}
		}
	}
	normalizeScores(scores)
	return scores
}

// nodePorts refuses nodes where another pod has one of the pod's host ports: the same port and protocol, and the same
// address, unless one of the two addresses is 0.0.0.0.
func nodePorts(c *simulation, pod *corev1.Pod, node *corev1.Node) *filterRefusal {
	for _, other := range c.podsOn(node) {
		for _, theirs := range hostPorts(other) {
			for _, ours := range hostPorts(pod) {
				everywhere := ours.HostIP == "0.0.0.0" || theirs.HostIP == "0.0.0.0"
				if ours.HostPort == theirs.HostPort && ours.Protocol == theirs.Protocol &&
					(everywhere || ours.HostIP == theirs.HostIP) {
					return newResolvable("node(s) didn't have free ports for the requested pod ports")
				}
			}
		}
	}
	return nil
}

// hostPorts returns the host ports, with defaults, of the containers that run as long as the pod.
func hostPorts(pod *corev1.Pod) []corev1.ContainerPort {
	running := slices.Clone(pod.Spec.Containers)
	for _, c := range pod.Spec.InitContainers {
		if isSidecar(c) {
			running = append(running, c)
		}
	}
	var ports []corev1.ContainerPort
	for _, c := range running {
		for _, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			if p.HostIP == "" {
				p.HostIP = "0.0.0.0"
			}
			if p.Protocol == "" {
				p.Protocol = corev1.ProtocolTCP
			}
			ports = append(ports, p)
		}
	}
	return ports
}

// isSidecar reports whether an init container keeps running beside the containers.
func isSidecar(c corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// declaredFeatures refuses nodes that do not declare a feature that the pod needs. The only such feature here is to
// restart all containers when one of them ends.
func declaredFeatures(_ *simulation, pod *corev1.Pod, node *corev1.Node) *filterRefusal {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, rule := range c.RestartPolicyRules {
			if rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers &&
				!slices.Contains(node.Status.DeclaredFeatures, restartAllFeature) {
				return newUnresolvable("node(s) didn't match Pod's required features")
			}
		}
	}
	return nil
}

// restartAllFeature is the feature that nodes declare if they support rules that restart all containers of a pod when
// one of them ends.
const restartAllFeature = "RestartAllContainersOnContainerExits"
