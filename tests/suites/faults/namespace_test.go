package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// testNamespace is the namespace in which a behaviour runs.
type testNamespace struct {
	*world
	namespace string
	seen      *watchRecord
}

// createNamespace creates the namespace and waits until it is ready for pods.
func (s *testNamespace) createNamespace(t *testing.T) {
	t.Helper()
	// The first write to an API server that has just started may exceed the server's own timeout.
	s.waitFor(t, "the namespace", func(ctx context.Context) (bool, any) {
		_, err := s.client.CoreV1().
			Namespaces().
			Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err), err
	})
	s.waitFor(t, "the default service account", func(ctx context.Context) (bool, any) {
		_, err := s.client.CoreV1().ServiceAccounts(s.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	})
}

// updateObject reads an object, changes it and writes it, and repeats this until there is no conflict.
func updateObject[O any](
	t *testing.T,
	s *testNamespace,
	get func(context.Context, string, metav1.GetOptions) (O, error),
	update func(context.Context, O, metav1.UpdateOptions) (O, error),
	name string,
	f func(O),
) {
	t.Helper()
	s.waitFor(t, "a change of "+name, func(ctx context.Context) (bool, any) {
		o, err := get(ctx, name, metav1.GetOptions{})
		if err == nil {
			f(o)
			_, err = update(ctx, o, metav1.UpdateOptions{})
		}
		return err == nil, err
	})
}

var labels = map[string]string{"app": "web"}

func newTemplate(image string, more map[string]string) corev1.PodTemplateSpec {
	all := map[string]string{"app": "web"}
	for k, v := range more {
		all[k] = v
	}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: all}, Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](
			1,
		), Containers: []corev1.Container{{Name: "c", Image: "example.com/a:" + image}}}}
}

func newReplicaSet(n int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &n,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: newTemplate("1", nil),
		}}
}

// podsByImage returns the number of live pods of each image, when no other pods are left.
func (s *testNamespace) podsByImage(ctx context.Context) string {
	list, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	count := map[string]int{}
	for _, pod := range list.Items {
		how := ""
		if pod.DeletionTimestamp != nil {
			how = " going"
		}
		count[fmt.Sprintf("%s %s%s", pod.Spec.Containers[0].Image, pod.Status.Phase, how)]++
	}
	var lines []string
	for what, n := range count {
		lines = append(lines, fmt.Sprintf("%d %s", n, what))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}
