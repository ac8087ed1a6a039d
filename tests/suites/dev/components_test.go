package dev

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Proves S12.
func TestComponentStatusesAreHealthy(t *testing.T) {
	t.Parallel()
	waitFor(t, "three healthy components", func(ctx context.Context) (bool, any) {
		list, err := sharedClient.CoreV1().ComponentStatuses().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		well := func(c corev1.ComponentStatus) bool {
			return len(c.Conditions) == 1 && c.Conditions[0].Type == corev1.ComponentHealthy &&
				c.Conditions[0].Status == corev1.ConditionTrue
		}
		return len(list.Items) == 3 &&
			!slices.ContainsFunc(list.Items, func(c corev1.ComponentStatus) bool { return !well(c) }), list.Items
	})
}
