package apiserver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Services get addresses from further ranges while these are ready and not being deleted. Services keep the addresses
// that they have.
func TestServiceCIDRsProvideAddresses(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			ctx := timeoutContext(t)
			client := kubernetes.NewForConfigOrDie(startConfig(t, open(t),
				func(o *apiserverOptions) { o.Addresses.ServiceClusterIPRange = []string{"10.0.0.0/28"} }))
			services, ranges := client.CoreV1().Services("default"), client.NetworkingV1().ServiceCIDRs()
			waitUntil(t, func() error {
				r, err := ranges.Get(ctx, "kubernetes", metav1.GetOptions{})
				if err == nil && len(r.Status.Conditions) == 0 {
					err = fmt.Errorf("not ready: %v", r.Status)
				}
				return err
			})
			// As between its creation and its Ready condition.
			if _, err := ranges.Patch(ctx, "kubernetes", types.MergePatchType, []byte(`{"status":{"conditions":null}}`), metav1.PatchOptions{}, "status"); err != nil {
				t.Fatal(err)
			}
			if _, err := ranges.Get(ctx, "kubernetes", metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := services.Create(ctx, serviceAt("early", "10.0.0.10"), metav1.CreateOptions{}); err != nil {
				t.Fatalf("the server's own range, before its Ready condition: %v", err)
			}
			if err := services.Delete(ctx, "early", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			// The range has 14 addresses, and the kubernetes service has the first.
			for i := range 13 {
				if _, err := services.Create(ctx, serviceAt(fmt.Sprint("s", i), ""),
					metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := services.Create(ctx, serviceAt("more", ""), metav1.CreateOptions{}); err == nil ||
				!strings.Contains(err.Error(), "range 10.0.0.0/28 is full") {
				t.Fatalf("a full range: %v", err)
			}
			if _, err := ranges.Create(ctx,
				&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "further",
					Finalizers: []string{"test/hold"}},
					Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.9.0.0/24"}}},
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := services.Create(ctx, serviceAt("asked", "10.9.0.77"),
				metav1.CreateOptions{}); !apierrors.IsInvalid(err) ||
				!strings.Contains(err.Error(), "not in the valid range. The range of valid IPs is 10.0.0.0/28") {
				t.Fatalf("a range that is not ready: %v", err)
			}
			ready := `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"","message":"by a test","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
			if _, err := ranges.Patch(ctx, "further", types.MergePatchType, []byte(ready), metav1.PatchOptions{},
				"status"); err != nil {
				t.Fatal(err)
			}
			// A range is used as soon as the watch has its Ready condition. The response to the patch does not wait for
			// that.
			waitUntil(t, func() error {
				_, err := services.Create(ctx, serviceAt("asked", "10.9.0.77"), metav1.CreateOptions{})
				return err
			})
			more, err := services.Create(ctx, serviceAt("more", ""), metav1.CreateOptions{})
			if err != nil || !strings.HasPrefix(more.Spec.ClusterIP, "10.9.0.") {
				t.Fatalf("an address of the further range: %v, %v", more.Spec.ClusterIP, err)
			}
			if err := ranges.Delete(ctx, "further", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := services.Create(ctx, serviceAt("late", "10.9.0.78"),
				metav1.CreateOptions{}); !apierrors.IsInvalid(
				err,
			) {
				t.Fatalf("an address of a range that is being deleted: %v", err)
			}
			if _, err := services.Patch(ctx, "more", types.MergePatchType, []byte(`{"spec":{"ports":[{"port":81}]}}`), metav1.PatchOptions{}); err != nil {
				t.Errorf("change a service whose range is being deleted: %v", err)
			}
		})
	}
}

// serviceAt returns a Service with an address.
func serviceAt(name, ip string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

// A deleted claim is restored, so that no other Service gets the address.
func TestDeletedAddressClaimsAreRestored(t *testing.T) {
	ctx := timeoutContext(t)
	server, cfg := startServer(t, stores["memory"](t), nil)
	client := kubernetes.NewForConfigOrDie(cfg)
	svc, err := client.CoreV1().
		Services("default").
		Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	addresses := client.NetworkingV1().IPAddresses()
	if err := addresses.Delete(ctx, svc.Spec.ClusterIP, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// An old claim with this allocator's label for a Service that does not exist, and a claim with another label.
	for ip, label := range map[string]string{"10.96.7.7": "ipallocator.k8s.io", "10.96.7.8": "somebody"} {
		if _, err := addresses.Create(ctx,
			&networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: ip,
				Labels: map[string]string{networkingv1.LabelManagedBy: label}},
				Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services",
					Namespace: "default", Name: "never"}}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	contains := func(ip string) bool {
		_, err := addresses.Get(ctx, ip, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	repair := func(after time.Duration) {
		t.Helper()
		if err := server.RepairAddresses(ctx, time.Now().Add(after)); err != nil {
			t.Fatal(err)
		}
	}
	repair(0)
	if !contains(svc.Spec.ClusterIP) || !contains("10.96.7.7") || !contains("10.96.7.8") {
		t.Errorf("claims: the service's %v, a young one %v, another user's %v", contains(svc.Spec.ClusterIP),
			contains("10.96.7.7"),
			contains("10.96.7.8"))
	}
	events, err := client.CoreV1().
		Events("default").
		List(context.WithoutCancel(ctx), metav1.ListOptions{FieldSelector: "reason=ClusterIPNotAllocated"})
	if err != nil || len(events.Items) != 1 ||
		!strings.Contains(events.Items[0].Message, "is not allocated; repairing") {
		t.Errorf("events: %v, %v", events.Items, err)
	}
	repair(2 * time.Minute)
	if !contains(svc.Spec.ClusterIP) || contains("10.96.7.7") || !contains("10.96.7.8") {
		t.Errorf("claims later: the service's %v, an old unused one %v, another user's %v",
			contains(svc.Spec.ClusterIP),
			contains("10.96.7.7"), contains("10.96.7.8"))
	}
}
