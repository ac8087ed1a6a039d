package oracle

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

// spreadConstraints returns the pod's constraints of one kind.
func spreadConstraints(pod *corev1.Pod, kind corev1.UnsatisfiableConstraintAction) []corev1.TopologySpreadConstraint {
	var result []corev1.TopologySpreadConstraint
	for _, t := range pod.Spec.TopologySpreadConstraints {
		if t.WhenUnsatisfiable == kind {
			result = append(result, t)
		}
	}
	return result
}

// countsPod reports whether a constraint of the pod counts another pod. It does if the other pod is in the same
// namespace, is selected, and is not being deleted. The other pod must have the pod's values of matchLabelKeys, as far
// as the pod has these keys.
func countsPod(t corev1.TopologySpreadConstraint, pod, other *corev1.Pod) bool {
	return other.Namespace == pod.Namespace && other.DeletionTimestamp == nil && sameLabelValues(t, pod, other)
}

func sameLabelValues(t corev1.TopologySpreadConstraint, pod, other *corev1.Pod) bool {
	for _, key := range t.MatchLabelKeys {
		if value, has := pod.Labels[key]; has && !hasAll(other.Labels, map[string]string{key: value}) {
			return false
		}
	}
	return selects(t.LabelSelector, other.Labels)
}

// countsNode reports whether a constraint counts the pods on a node, by the constraint's inclusion policies. By
// default, the policy for node affinity is Honor and the policy for taints is Ignore.
func countsNode(t corev1.TopologySpreadConstraint, pod *corev1.Pod, node *corev1.Node) bool {
	if (t.NodeAffinityPolicy == nil || *t.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor) &&
		!admitsNode(pod, node) {
		return false
	}
	honorsTaints := t.NodeTaintsPolicy != nil && *t.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
	return !honorsTaints || toleratesNode(pod, node)
}

// hasKeys reports whether the node has the topology keys of all constraints.
func hasKeys(node *corev1.Node, constraints []corev1.TopologySpreadConstraint) bool {
	for _, t := range constraints {
		if _, has := node.Labels[t.TopologyKey]; !has {
			return false
		}
	}
	return true
}

// podTopologySpread refuses nodes where the pod would make its domain exceed the smallest domain by more than maxSkew.
// With fewer eligible domains than minDomains, the minimum counts as 0.
func podTopologySpread(c *simulation, pod *corev1.Pod, node *corev1.Node) *filterRefusal {
	constraints := spreadConstraints(pod, corev1.DoNotSchedule)
	if len(pod.Spec.TopologySpreadConstraints) == 0 {
		constraints = c.defaultConstraints(pod, corev1.DoNotSchedule)
	}
	for _, t := range constraints {
		mine, has := node.Labels[t.TopologyKey]
		if !has {
			return newUnresolvable("node(s) didn't match pod topology spread constraints (missing required label)")
		}
		domains := map[string]int{}
		for _, n := range c.Nodes {
			if !hasKeys(n, constraints) || !countsNode(t, pod, n) {
				continue
			}
			domains[n.Labels[t.TopologyKey]] += c.countPods(t, pod, n)
		}
		least := math.MaxInt32
		for _, n := range domains {
			least = min(least, n)
		}
		minDomains := 1
		if t.MinDomains != nil {
			minDomains = int(*t.MinDomains)
		}
		if len(domains) < minDomains {
			least = 0
		}
		self := 0
		if sameLabelValues(t, pod, pod) {
			self = 1
		}
		if domains[mine]+self-least > int(t.MaxSkew) {
			return newResolvable("node(s) didn't match pod topology spread constraints")
		}
	}
	return nil
}

// countPods returns the number of pods on a node that a constraint counts.
func (c *simulation) countPods(t corev1.TopologySpreadConstraint, pod *corev1.Pod, node *corev1.Node) int {
	n := 0
	for _, p := range c.pods {
		if p.node == node && countsPod(t, pod, p.pod) {
			n++
		}
	}
	return n
}

// podTopologySpreadScore prefers nodes in domains with few of the counted pods. A pod without constraints is spread
// over hosts and zones, or as the configuration says. Then the counted pods are those that the pod's services and
// controller select.
func podTopologySpreadScore(c *simulation, pod *corev1.Pod, nodes []*corev1.Node) []int64 {
	constraints := spreadConstraints(pod, corev1.ScheduleAnyway)
	own := len(pod.Spec.TopologySpreadConstraints) > 0 || c.hasListedConstraints()
	if len(pod.Spec.TopologySpreadConstraints) == 0 {
		constraints = c.defaultConstraints(pod, corev1.ScheduleAnyway)
	}
	if len(constraints) == 0 {
		return nil
	}
	// Nodes without one of the keys are not scored, unless the constraints are the system's defaults.
	ranked := func(n *corev1.Node) bool { return !own || hasKeys(n, constraints) }
	scores := make([]int64, len(nodes))
	var least, most int64 = math.MaxInt64, 0
	for i, node := range nodes {
		if !ranked(node) {
			continue
		}
		var score float64
		for _, t := range constraints {
			domain, has := node.Labels[t.TopologyKey]
			if !has {
				continue
			}
			n, domains := 0, map[string]bool{}
			for _, candidate := range nodes {
				if ranked(candidate) {
					domains[candidate.Labels[t.TopologyKey]] = true
				}
			}
			size := len(domains)
			if t.TopologyKey == corev1.LabelHostname {
				n, size = c.countPods(t, pod, node), countRanked(nodes, ranked)
			} else {
				for _, other := range c.Nodes {
					if ranked(other) && countsNode(t, pod, other) && other.Labels[t.TopologyKey] == domain {
						n += c.countPods(t, pod, other)
					}
				}
			}
			score += float64(n)*math.Log(float64(size+2)) + float64(t.MaxSkew-1)
		}
		scores[i] = int64(math.Round(score))
		least, most = min(least, scores[i]), max(most, scores[i])
	}
	for i, node := range nodes {
		switch {
		case !ranked(node):
			scores[i] = 0
		case most == 0:
			scores[i] = maxScore
		default:
			scores[i] = maxScore * (most + least - scores[i]) / most
		}
	}
	return scores
}

func countRanked(nodes []*corev1.Node, ranked func(*corev1.Node) bool) int {
	n := 0
	for _, node := range nodes {
		if ranked(node) {
			n++
		}
	}
	return n
}

// hasListedConstraints reports whether the configuration lists the constraints of pods without constraints.
func (c *simulation) hasListedConstraints() bool {
	return c.Arguments.Spread != nil && c.Arguments.Spread.DefaultingType == configv1.ListDefaulting
}

// defaultConstraints returns the constraints of pods without constraints: hosts with a skew of 3 and zones with a skew
// of 5, or those that the configuration lists.
func (c *simulation) defaultConstraints(
	pod *corev1.Pod,
	kind corev1.UnsatisfiableConstraintAction,
) []corev1.TopologySpreadConstraint {
	usual := []corev1.TopologySpreadConstraint{
		{MaxSkew: 3, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway},
		{MaxSkew: 5, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway},
	}
	if c.hasListedConstraints() {
		usual = c.Arguments.Spread.DefaultConstraints
	}
	siblings := c.siblings(pod)
	if isEmptySelector(siblings) {
		return nil
	}
	var constraints []corev1.TopologySpreadConstraint
	for _, t := range usual {
		if t.WhenUnsatisfiable == kind {
			t.LabelSelector = siblings
			constraints = append(constraints, t)
		}
	}
	return constraints
}

// siblings returns a selector of the pods that all services of the pod and its controller select.
func (c *simulation) siblings(pod *corev1.Pod) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for _, service := range c.Services {
		if service.Namespace == pod.Namespace && service.Spec.Selector != nil &&
			hasAll(pod.Labels, service.Spec.Selector) {
			addLabels(s, service.Spec.Selector)
		}
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return s
	}
	switch owner.APIVersion + " " + owner.Kind {
	case "v1 ReplicationController":
		for _, o := range c.ReplicationControllers {
			if o.Namespace == pod.Namespace && o.Name == owner.Name {
				addLabels(s, o.Spec.Selector)
			}
		}
	case "apps/v1 ReplicaSet":
		for _, o := range c.ReplicaSets {
			if o.Namespace == pod.Namespace && o.Name == owner.Name {
				addSelector(s, o.Spec.Selector)
			}
		}
	case "apps/v1 StatefulSet":
		for _, o := range c.StatefulSets {
			if o.Namespace == pod.Namespace && o.Name == owner.Name {
				addSelector(s, o.Spec.Selector)
			}
		}
	}
	return s
}

func addLabels(s *metav1.LabelSelector, labels map[string]string) {
	for key, value := range labels {
		s.MatchLabels[key] = value
	}
}

// addSelector adds the requirements of more to s. Both apply, even if they contradict each other about a label.
func addSelector(s, more *metav1.LabelSelector) {
	for key, value := range more.MatchLabels {
		s.MatchExpressions = append(s.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}})
	}
	s.MatchExpressions = append(s.MatchExpressions, more.MatchExpressions...)
}
