package api

import (
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
)

// Proves S13.
func TestTolerationMatching(t *testing.T) {
	for _, c := range []struct {
		toleration corev1.Toleration
		taint      string // value of a taint with key k and effect NoSchedule
		want       bool
	}{
		{corev1.Toleration{Operator: "Exists"}, "v", true},
		{corev1.Toleration{Key: "k", Operator: "Exists", Effect: "NoSchedule"}, "v", true},
		{corev1.Toleration{Key: "k", Operator: "Exists", Effect: "NoExecute"}, "v", false},
		{corev1.Toleration{Key: "other", Operator: "Exists"}, "v", false},
		{corev1.Toleration{Key: "k", Value: "v"}, "v", true},
		{corev1.Toleration{Key: "k", Operator: "Equal", Value: "w"}, "v", false},
		{corev1.Toleration{Key: "k", Operator: "Gt", Value: "950"}, "990", true},
		{corev1.Toleration{Key: "k", Operator: "Gt", Value: "950"}, "950", false},
		{corev1.Toleration{Key: "k", Operator: "Gt", Value: "-5"}, "-4", true},
		{corev1.Toleration{Key: "k", Operator: "Lt", Value: "950"}, "949", true},
		{corev1.Toleration{Key: "k", Operator: "Lt", Value: "950"}, "950", false},
		{corev1.Toleration{Key: "k", Operator: "Lt", Value: "950", Effect: "NoExecute"}, "1", false},
		{corev1.Toleration{Key: "k", Operator: "Gt", Value: "10"}, "9", false}, // compared as numbers, not as text
		{corev1.Toleration{Key: "k", Operator: "Gt", Value: "1"}, "many", false},
		{corev1.Toleration{Key: "k", Operator: "Lt", Value: "many"}, "1", false},
		{corev1.Toleration{Key: "k", Operator: "Lt", Value: "9223372036854775808"}, "1", false},
		{corev1.Toleration{Key: "k", Operator: "Lt", Value: "5"}, "01", false},
		{corev1.Toleration{Key: "k", Operator: "Lt", Value: "+5"}, "1", false},
		{corev1.Toleration{Key: "k", Operator: "Near", Value: "v"}, "v", false},
	} {
		taint := &corev1.Taint{Key: "k", Value: c.taint, Effect: "NoSchedule"}
		if got := Tolerates(&c.toleration, taint); got != c.want {
			t.Errorf("%v of %q: %v", c.toleration, c.taint, got)
		}
		if published := c.toleration.ToleratesTaint(logr.Discard(), taint, true); published != c.want {
			t.Errorf("%v of %q: the published function says %v", c.toleration, c.taint, published)
		}
	}
}
