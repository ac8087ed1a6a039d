package api

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// Tolerates reports whether a toleration matches a taint. Empty keys and effects match all; Gt and Lt compare whole
// numbers, and match nothing that is none: a taint's value above the toleration's is tolerated by Gt, one below it by
// Lt.
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
		is, known := whole(taint.Value)
		limit, given := whole(t.Value)
		return known && given &&
			(t.Operator == corev1.TolerationOpGt && is > limit || t.Operator == corev1.TolerationOpLt && is < limit)
	}
	return false
}

// whole reads a number as it is usually written: without a plus and without zeros before it.
func whole(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == text
}
