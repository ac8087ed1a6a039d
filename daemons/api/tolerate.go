package api

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// Tolerates reports whether a toleration matches a taint. Empty keys and effects match all. Gt matches taints with a
// value above the toleration's, and Lt those with a value below. Both compare integers and match nothing else.
func Tolerates(t *corev1.Toleration, taint *corev1.Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
		return false
	}
	switch t.Operator {
	case corev1.TolerationOpExists:
		return true
	case "", corev1.TolerationOpEqual:
		return t.Value == taint.Value
	case corev1.TolerationOpGt, corev1.TolerationOpLt:
		current, ok := parseCanonical(taint.Value)
		limit, given := parseCanonical(t.Value)
		return ok && given &&
			(t.Operator == corev1.TolerationOpGt && current > limit || t.Operator == corev1.TolerationOpLt &&
				current < limit)
	}
	return false
}

// parseCanonical parses an integer in canonical form: without a plus sign or leading zeros.
func parseCanonical(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == text
}
