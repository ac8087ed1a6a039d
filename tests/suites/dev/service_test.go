package dev

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Proves S20.
func TestEndpointsFollowTheReadinessOfPods(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	must[*corev1.Service](t)(sharedClient.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "s"},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}},
		},
	}, metav1.CreateOptions{}))
	spec := podSpec()
	spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
	// The readiness gate controls when the pods are ready.
	spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/open"}}
	for _, name := range []string{"a", "b"} {
		must[*corev1.Pod](t)(sharedClient.CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name:   name,
				Labels: map[string]string{"app": "s"},
			}, Spec: spec}, metav1.CreateOptions{}))
	}
	see := func(ready, waiting int) { t.Helper(); waitForEndpoints(t, ns, ready, waiting) }
	see(0, 2)
	open := func(pod, status string) {
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"example.com/open","status":%q}]}}`, status)
		if _, err := sharedClient.CoreV1().Pods(ns).Patch(t.Context(), pod, types.StrategicMergePatchType,
			[]byte(patch),
			metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	open("a", "True")
	see(1, 1)
	open("b", "True")
	see(2, 0)
	open("a", "False")
	see(1, 1)
	if err := sharedClient.CoreV1().Pods(ns).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	see(1, 0)
	if err := sharedClient.CoreV1().Services(ns).Delete(t.Context(), "s", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "endpoints and slices to go with the service", func(ctx context.Context) (bool, any) {
		slices := must[*discoveryv1.EndpointSliceList](t)(sharedClient.DiscoveryV1().EndpointSlices(ns).List(ctx,
			metav1.ListOptions{})).Items
		ok, err := isGone(sharedClient.CoreV1().Endpoints(ns).Get(ctx, "s", metav1.GetOptions{}))
		return ok && len(slices) == 0, err
	})
}

// waitForEndpoints waits until the slice and the Endpoints of the Service have numbers of ready and other pods.
func waitForEndpoints(t *testing.T, ns string, ready, waiting int) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%d endpoints ready and %d not", ready, waiting), func(ctx context.Context) (bool, any) {
		slices := must[*discoveryv1.EndpointSliceList](t)(
			sharedClient.DiscoveryV1().
				EndpointSlices(ns).
				List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=s"}),
		).Items
		counts, in := map[bool]int{}, map[string]int{}
		for _, slice := range slices {
			for _, e := range slice.Endpoints {
				counts[*e.Conditions.Ready]++
				if in[e.TargetRef.Name]++; in[e.TargetRef.Name] > 1 {
					t.Fatalf("pod %s is in two slices", e.TargetRef.Name)
				}
			}
		}
		old := map[bool]int{}
		endpoints, err := sharedClient.CoreV1().Endpoints(ns).Get(ctx, "s", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, subset := range endpoints.Subsets {
			old[true] += len(subset.Addresses)
			old[false] += len(subset.NotReadyAddresses)
			for _, p := range subset.Ports {
				if p.Port != 8080 {
					t.Fatalf("port %d", p.Port)
				}
			}
		}
		return len(slices) == 1 && counts[true] == ready && counts[false] == waiting && old[true] == ready &&
			old[false] == waiting, fmt.Sprint(counts, old)
	})
}
