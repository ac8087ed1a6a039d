package kinds

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func nodeWarnings(n, _ *corev1.Node) []string {
	var d warningList
	if n.Spec.ConfigSource != nil {
		d.addf(field.NewPath("spec", "configSource"), "the feature is removed")
	}
	if n.Spec.DoNotUseExternalID != "" {
		d.addf(field.NewPath("spec", "externalID"), "this field is deprecated, and is unused by Kubernetes")
	}
	for i, cidr := range n.Spec.PodCIDRs {
		d = append(d, cidrWarnings(field.NewPath("spec", "podCIDRs").Index(i), cidr)...)
	}
	return d
}
