package core

import (
	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kinds/kind"
)

// ComponentStatuses declares ComponentStatuses, which only old runbooks read. They are computed on each read and cannot
// be written.
func ComponentStatuses() *kind.Kind {
	return &kind.Kind{
		GVK:        corev1.SchemeGroupVersion.WithKind("ComponentStatus"),
		Deprecated: "v1 ComponentStatus is deprecated in v1.19+",
		Resource:   "componentstatuses", Singular: "componentstatus", ShortNames: []string{"cs"},
		Virtual: true, Verbs: []string{"get", "list"},
		New: kind.New[corev1.ComponentStatus](), NewList: kind.New[corev1.ComponentStatusList](),
		Columns: kind.NewColumns("Status", "Message", "Error"),
		Row: kind.AdaptRow(func(c *corev1.ComponentStatus) []any {
			status, message, failure := "Unknown", "", ""
			for _, cond := range c.Conditions {
				if cond.Type == corev1.ComponentHealthy {
					status, message, failure = "Unhealthy", cond.Message, cond.Error
					if cond.Status == corev1.ConditionTrue {
						status = "Healthy"
					}
				}
			}
			return []any{status, message, failure}
		}),
	}
}
