package kinds

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// renamedLabelWarnings maps renamed labels of nodes to warnings.
var renamedLabelWarnings = map[string]string{
	"beta.kubernetes.io/arch":                       `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":                         `deprecated since v1.14; use "kubernetes.io/os" instead`,
	"failure-domain.beta.kubernetes.io/region":      `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	"failure-domain.beta.kubernetes.io/zone":        `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	"beta.kubernetes.io/instance-type":              `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
	"app.kubernetes.io/created-by":                  `deprecated since v1.9`,
	"scheduler.alpha.kubernetes.io/preferAvoidPods": `deprecated since v1.22; use Taints and Tolerations instead`,
	"node-role.kubernetes.io/master":                `use "node-role.kubernetes.io/control-plane" instead`,
}

// termWarnings warns about renamed labels in a node selector term. If values is set, it also warns about values that no
// label can have, which are not checked elsewhere.
func termWarnings(d *warningList, term corev1.NodeSelectorTerm, values bool, at *field.Path) {
	for i, e := range term.MatchExpressions {
		where := at.Child("matchExpressions").Index(i)
		if text := renamedLabelWarnings[e.Key]; text != "" {
			d.addf(where.Child("key"), "%s is %s", e.Key, text)
		}
		if !values {
			continue
		}
		for j, v := range e.Values {
			for _, wrong := range validation.IsValidLabelValue(v) {
				d.addf(where.Child("values").Index(j), "%s is invalid, %s", v, wrong)
			}
		}
	}
}

// topologyWarnings warns about renamed labels in a node selector.
func topologyWarnings(d *warningList, s *metav1.LabelSelector, at *field.Path) {
	if s == nil {
		return
	}
	for i, e := range s.MatchExpressions {
		if text := renamedLabelWarnings[e.Key]; text != "" {
			d.addf(at.Child("matchExpressions").Index(i).Child("key"), "%s is %s", e.Key, text)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		if text := renamedLabelWarnings[key]; text != "" {
			d.addf(at.Child("matchLabels").Child(key), "%s", text)
		}
	}
}
