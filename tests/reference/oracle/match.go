package oracle

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// selects reports whether a label selector selects these labels. A nil selector selects nothing, and an empty one
// selects everything.
func selects(s *metav1.LabelSelector, labels map[string]string) bool {
	if s == nil {
		return false
	}
	if !hasAll(labels, s.MatchLabels) {
		return false
	}
	for _, e := range s.MatchExpressions {
		value, has := labels[e.Key]
		var ok bool
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			ok = has && slices.Contains(e.Values, value)
		case metav1.LabelSelectorOpNotIn:
			ok = !has || !slices.Contains(e.Values, value)
		case metav1.LabelSelectorOpExists:
			ok = has
		case metav1.LabelSelectorOpDoesNotExist:
			ok = !has
		}
		if !ok {
			return false
		}
	}
	return true
}

func isEmptySelector(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
}

func hasAll(labels, want map[string]string) bool {
	for key, value := range want {
		if got, has := labels[key]; !has || got != value {
			return false
		}
	}
	return true
}

// matchesTerms reports whether any term of a node selector matches the node.
func matchesTerms(s *corev1.NodeSelector, node *corev1.Node) bool {
	return slices.ContainsFunc(s.NodeSelectorTerms,
		func(t corev1.NodeSelectorTerm) bool { return matchesTerm(t, node) })
}

// matchesTerm reports whether the node meets all requirements of a term. A term without requirements matches no node.
func matchesTerm(t corev1.NodeSelectorTerm, node *corev1.Node) bool {
	if len(t.MatchExpressions) == 0 && len(t.MatchFields) == 0 {
		return false
	}
	for _, r := range t.MatchExpressions {
		if !meetsRequirement(r, node.Labels) {
			return false
		}
	}
	for _, r := range t.MatchFields {
		if !meetsRequirement(r, map[string]string{metav1.ObjectNameField: node.Name}) {
			return false
		}
	}
	return true
}

func meetsRequirement(r corev1.NodeSelectorRequirement, labels map[string]string) bool {
	value, has := labels[r.Key]
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return has && slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpNotIn:
		return !has || !slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpExists:
		return has
	case corev1.NodeSelectorOpDoesNotExist:
		return !has
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			return false
		}
		label, err := strconv.ParseInt(value, 10, 64)
		bound, err2 := strconv.ParseInt(r.Values[0], 10, 64)
		if !has || err != nil || err2 != nil {
			return false
		}
		if r.Operator == corev1.NodeSelectorOpGt {
			return label > bound
		}
		return label < bound
	}
	return false
}

// admitsNode reports whether the pod's nodeSelector and required node affinity admit the node.
func admitsNode(pod *corev1.Pod, node *corev1.Node) bool {
	if !hasAll(node.Labels, pod.Spec.NodeSelector) {
		return false
	}
	required := requiredNodeAffinity(pod)
	return required == nil || matchesTerms(required, node)
}

func requiredNodeAffinity(pod *corev1.Pod) *corev1.NodeSelector {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// tolerates reports whether any toleration of the pod tolerates the taint.
func tolerates(pod *corev1.Pod, taint corev1.Taint) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			return false
		}
		switch t.Operator {
		case "", corev1.TolerationOpEqual:
			return t.Value == taint.Value
		case corev1.TolerationOpExists:
			return true
		case corev1.TolerationOpGt, corev1.TolerationOpLt:
			theirs, ok := parseDecimal(taint.Value)
			ours, ok2 := parseDecimal(t.Value)
			if !ok || !ok2 {
				return false
			}
			if t.Operator == corev1.TolerationOpGt {
				return theirs > ours
			}
			return theirs < ours
		}
		return false
	})
}

// parseDecimal parses an integer in its canonical form: without a plus sign and leading zeros.
func parseDecimal(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == s
}
