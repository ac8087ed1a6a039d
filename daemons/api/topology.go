package api

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// InTopologies reports whether a node with these labels is where a StorageClass allows volumes: in one of the terms, of
// each of whose labels it has one of the values. Without terms that is anywhere; a term without labels is nowhere.
func InTopologies(terms []corev1.TopologySelectorTerm, labels map[string]string) bool {
	return len(terms) == 0 || slices.ContainsFunc(terms, func(t corev1.TopologySelectorTerm) bool {
		for _, e := range t.MatchLabelExpressions {
			if value, has := labels[e.Key]; !has || !slices.Contains(e.Values, value) {
				return false
			}
		}
		return len(t.MatchLabelExpressions) > 0
	})
}
