package api

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// InTopologies reports whether a StorageClass with these terms allows volumes on a node with these labels. The node
// must match all labels of one term. Without terms, every node matches. A term without labels matches no node.
func InTopologies(terms []corev1.TopologySelectorTerm, labels map[string]string) bool {
	return len(terms) == 0 || slices.ContainsFunc(terms, func(t corev1.TopologySelectorTerm) bool {
		for _, e := range t.MatchLabelExpressions {
			if value, ok := labels[e.Key]; !ok || !slices.Contains(e.Values, value) {
				return false
			}
		}
		return len(t.MatchLabelExpressions) > 0
	})
}
