// Package quota computes what objects use of ResourceQuotas, and which objects a quota covers. The API server enforces
// quotas with it, and the controller reports usage with it. It gets all objects from its callers.
package quota

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Charge returns what an object uses of a quota at a time. It returns nil if the quota does not cover the object.
func Charge(q *corev1.ResourceQuota, of schema.GroupResource, obj any, now time.Time,
	with Lookups) corev1.ResourceList {
	if !Covers(q, obj) {
		return nil
	}
	usage := Usage(of, obj, now, with)
	for name := range usage {
		if _, bounded := q.Spec.Hard[name]; !bounded {
			delete(usage, name)
		}
	}
	return usage
}

// Add adds amounts to a sum.
func Add(sum, more corev1.ResourceList) {
	for name, amount := range more {
		total := sum[name]
		total.Add(amount)
		sum[name] = total
	}
}

// Same reports whether two charges are the same amounts.
func Same(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, amount := range a {
		other, ok := b[name]
		if !ok || amount.Cmp(other) != 0 {
			return false
		}
	}
	return true
}
