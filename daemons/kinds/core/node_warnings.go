package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/warn"
)

func nodeWarnings(n, _ *corev1.Node) []string {
	var d warn.List
	if n.Spec.ConfigSource != nil {
		d.Addf(field.NewPath("spec", "configSource"), "the feature is removed")
	}
	if n.Spec.DoNotUseExternalID != "" {
		d.Addf(field.NewPath("spec", "externalID"), "this field is deprecated, and is unused by Kubernetes")
	}
	for i, cidr := range n.Spec.PodCIDRs {
		d = append(d, warn.CIDR(field.NewPath("spec", "podCIDRs").Index(i), cidr)...)
	}
	return d
}
