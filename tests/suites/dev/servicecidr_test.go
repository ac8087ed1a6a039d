package dev

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Proves S20.
func TestAServiceCIDRStaysWhileServicesHaveItsAddresses(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	ranges, services := sharedClient.NetworkingV1().ServiceCIDRs(), sharedClient.CoreV1().Services(ns)
	declare := func(name, cidr string) {
		t.Helper()
		must[*networkingv1.ServiceCIDR](t)(
			ranges.Create(t.Context(), &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}}}, metav1.CreateOptions{}),
		)
	}
	see := func(name string, status metav1.ConditionStatus, message string) {
		t.Helper()
		waitFor(t, name+" to be ready: "+string(status), func(ctx context.Context) (bool, any) {
			r, err := ranges.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			c := meta.FindStatusCondition(r.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
			return c != nil && c.Status == status && strings.Contains(c.Message, message) &&
				strings.Contains(strings.Join(r.Finalizers, " "), "networking.k8s.io/service-cidr-finalizer"), r
		})
	}
	waitDeleted := func(name string) {
		t.Helper()
		waitFor(t, name+" to be gone", func(ctx context.Context) (bool, any) {
			r, err := ranges.Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), r
		})
	}
	drop := func(name string) {
		t.Helper()
		if err := ranges.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	declare("half", "172.30.0.0/25")
	see("half", metav1.ConditionTrue, "Kubernetes Service CIDR is ready")
	must[*corev1.Service](t)(services.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "held"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "172.30.0.9",
			Ports:     []corev1.ServicePort{{Port: 80}},
		}}, metav1.CreateOptions{}))
	drop("half")
	see("half", metav1.ConditionFalse,
		"There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR")

	// If another range also contains the address, the first one can be deleted.
	declare("whole", "172.30.0.0/24")
	waitDeleted("half")
	drop("whole")
	see("whole", metav1.ConditionFalse, "There are still IPAddresses")
	if err := services.Delete(t.Context(), "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitDeleted("whole")
}
