package dev

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Proves S20.
func TestNamespacesAreDeletedAfterTheirContent(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	createDeployment(t, ns, 2, nil)
	awaitRollout(t, ns)
	createConfigMap(t, ns, "held", nil, "example.com/hold")
	if err := sharedClient.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "word of what holds it", func(ctx context.Context) (bool, any) {
		n, err := sharedClient.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		if err != nil {
			t.Fatalf("the namespace went with content in it: %v", err)
		}
		remaining := func(kind corev1.NamespaceConditionType, text string) bool {
			return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NamespaceCondition) bool {
				return c.Type == kind && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, text)
			})
		}
		return n.Status.Phase == corev1.NamespaceTerminating &&
			remaining(corev1.NamespaceContentRemaining, "configmaps. has 1 ") &&
			remaining(corev1.NamespaceFinalizersRemaining, "example.com/hold in 1 "), n.Status
	})
	if _, err := sharedClient.CoreV1().ConfigMaps(ns).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}},
		metav1.CreateOptions{}); !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("creating in a namespace that goes: %v", err)
	}
	waitFor(t, "all else to go", func(ctx context.Context) (bool, any) {
		n := len(podsOf(t, ns, "")) + len(replicaSets(t, ns))
		return n == 0, n
	})
	if _, err := sharedClient.CoreV1().ConfigMaps(ns).Patch(t.Context(), "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the namespace to go", func(ctx context.Context) (bool, any) {
		return isGone(sharedClient.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}))
	})
}

// Proves S20.
func TestNamespacesKeepTheirDefaultAccountAndTheRootCA(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	bundle := func(ctx context.Context) (bool, any) {
		c, err := sharedClient.CoreV1().ConfigMaps(ns).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err == nil && c.Data["ca.crt"] == string(restConfig.CAData), err
	}
	waitFor(t, "the root CA", bundle)
	if _, err := sharedClient.CoreV1().ConfigMaps(ns).Patch(t.Context(), "kube-root-ca.crt", types.MergePatchType, []byte(`{"data":{"ca.crt":"forged"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the root CA again after it was changed", bundle)
	deleteConfigMap(t, ns, "kube-root-ca.crt", metav1.DeletePropagationBackground)
	waitFor(t, "the root CA again after it was deleted", bundle)
	before := must[*corev1.ServiceAccount](t)(sharedClient.CoreV1().ServiceAccounts(ns).Get(t.Context(), "default",
		metav1.GetOptions{}))
	if err := sharedClient.CoreV1().ServiceAccounts(ns).Delete(t.Context(), "default",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a new default account", func(ctx context.Context) (bool, any) {
		got, err := sharedClient.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
		return err == nil && got.UID != before.UID, err
	})
}

// Objects that protect pods, and objects that pods use, remain until the last pod has ended.
// Proves S20.
func TestPodsAreTheFirstContentOfANamespaceToGo(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	pod := must[*corev1.Pod](t)(sharedClient.CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:       "held",
			Finalizers: []string{"example.com/hold"},
		}, Spec: podSpec()}, metav1.CreateOptions{}))
	must[*networkingv1.NetworkPolicy](t)(
		sharedClient.NetworkingV1().NetworkPolicies(ns).Create(t.Context(), &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "guard"}}, metav1.CreateOptions{}),
	)
	if err := sharedClient.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the pod to be on its way, and the status to say so", func(ctx context.Context) (bool, any) {
		p := must[*corev1.Pod](t)(sharedClient.CoreV1().Pods(ns).Get(ctx, pod.Name, metav1.GetOptions{}))
		n := must[*corev1.Namespace](t)(sharedClient.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}))
		return p.DeletionTimestamp != nil &&
			slices.ContainsFunc(n.Status.Conditions, func(c corev1.NamespaceCondition) bool {
				return c.Type == corev1.NamespaceContentRemaining && c.Status == corev1.ConditionTrue &&
					c.Message == "Some resources are remaining: pods. has 1 resource instances"
			}), n.Status
	})
	holdFor(t, "a policy went before the pod", func(ctx context.Context) (bool, any) {
		p, err := sharedClient.NetworkingV1().NetworkPolicies(ns).Get(ctx, "guard", metav1.GetOptions{})
		return err == nil && p.DeletionTimestamp == nil, err
	})
	if _, err := sharedClient.CoreV1().Pods(ns).Patch(t.Context(), pod.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the namespace to go", func(ctx context.Context) (bool, any) {
		return isGone(sharedClient.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}))
	})
}
