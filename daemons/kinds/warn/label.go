package warn

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// RenamedLabels maps renamed labels of nodes to warnings.
var RenamedLabels = map[string]string{
	"beta.kubernetes.io/arch":                       `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":                         `deprecated since v1.14; use "kubernetes.io/os" instead`,
	"failure-domain.beta.kubernetes.io/region":      `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	"failure-domain.beta.kubernetes.io/zone":        `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	"beta.kubernetes.io/instance-type":              `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
	"app.kubernetes.io/created-by":                  `deprecated since v1.9`,
	"scheduler.alpha.kubernetes.io/preferAvoidPods": `deprecated since v1.22; use Taints and Tolerations instead`,
	"node-role.kubernetes.io/master":                `use "node-role.kubernetes.io/control-plane" instead`,
}

// NodeTerm warns about renamed labels in a node selector term. If values is set, it also warns about values that no
// label can have, which are not checked elsewhere.
func NodeTerm(d *List, term corev1.NodeSelectorTerm, values bool, at *field.Path) {
	for i, e := range term.MatchExpressions {
		where := at.Child("matchExpressions").Index(i)
		if text := RenamedLabels[e.Key]; text != "" {
			d.Addf(where.Child("key"), "%s is %s", e.Key, text)
		}
		if !values {
			continue
		}
		for j, v := range e.Values {
			for _, wrong := range validation.IsValidLabelValue(v) {
				d.Addf(where.Child("values").Index(j), "%s is invalid, %s", v, wrong)
			}
		}
	}
}

// Topology warns about renamed labels in a node selector.
func Topology(d *List, s *metav1.LabelSelector, at *field.Path) {
	if s == nil {
		return
	}
	for i, e := range s.MatchExpressions {
		if text := RenamedLabels[e.Key]; text != "" {
			d.Addf(at.Child("matchExpressions").Index(i).Child("key"), "%s is %s", e.Key, text)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		if text := RenamedLabels[key]; text != "" {
			d.Addf(at.Child("matchLabels").Child(key), "%s", text)
		}
	}
}
