// Package quota says what objects take of the things that ResourceQuotas bound, and which
// objects a quota is about. The API server, which refuses, and the controller, which shows
// what is used, decide by it alike. It adds up what it is given and finds no objects itself.
package quota

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Charge is what an object of a resource takes of the things that a quota bounds at a
// time; nil if the quota is not about it.
func Charge(q *corev1.ResourceQuota, of schema.GroupResource, obj any, now time.Time, with Others) corev1.ResourceList {
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
