package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func garbageIsCollected(t *testing.T, s *testNamespace) string {
	maps := s.client.CoreV1().ConfigMaps(s.namespace)
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground,
		metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		name := strings.ToLower(string(policy))
		owner, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ref := metav1.OwnerReference{
			APIVersion:         "v1",
			Kind:               "ConfigMap",
			Name:               name,
			UID:                owner.UID,
			BlockOwnerDeletion: ptr.To(true),
		}
		for i := range 5 {
			own := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{
					Name:            fmt.Sprintf("%s-%d", name, i),
					OwnerReferences: []metav1.OwnerReference{ref},
				},
			}
			if _, err := maps.Create(t.Context(), own, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := maps.Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			t.Fatal(err)
		}
	}
	var left []string
	s.waitFor(t, "what was owned to go", func(ctx context.Context) (bool, any) {
		list, err := maps.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		left = nil
		for _, m := range list.Items {
			if !strings.HasPrefix(m.Name, "kube-") {
				left = append(left, fmt.Sprintf("%s with %d owners", m.Name, len(m.OwnerReferences)))
			}
		}
		slices.Sort(left)
		return len(left) == 5 &&
			!slices.ContainsFunc(left, func(l string) bool { return !strings.HasSuffix(l, " 0 owners") }), left
	})
	return strings.Join(left, ", ")
}

func namespaceIsDeleted(t *testing.T, s *testNamespace) string {
	if _, err := s.client.AppsV1().ReplicaSets(s.namespace).Create(t.Context(), newReplicaSet(4),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "four pods", func(ctx context.Context) (bool, any) {
		pods := s.podsByImage(ctx)
		return pods == "4 example.com/a:1 Running", pods
	})
	if err := s.client.CoreV1().Namespaces().Delete(t.Context(), s.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "the namespace to go", func(ctx context.Context) (bool, any) {
		ns, err := s.client.CoreV1().Namespaces().Get(ctx, s.namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err), ns
	})
	sets, err := s.client.AppsV1().ReplicaSets(s.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("gone, with %d sets left and pods %q", len(sets.Items), s.podsByImage(t.Context()))
}
