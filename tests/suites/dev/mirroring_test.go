package dev

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Proves S20.
func TestEndpointsOfAServiceWithoutASelectorAreMirrored(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	services, endpoints := sharedClient.CoreV1().Services(ns), sharedClient.CoreV1().Endpoints(ns)
	see := func(want string) {
		t.Helper()
		waitFor(t, "the mirror to be "+want, func(ctx context.Context) (bool, any) {
			list, err := sharedClient.DiscoveryV1().EndpointSlices(ns).List(ctx, metav1.ListOptions{
				LabelSelector: discoveryv1.LabelServiceName + "=old," + discoveryv1.LabelManagedBy +
					"=endpointslicemirroring-controller.k8s.io"})
			if err != nil {
				return false, err
			}
			var all []string
			for _, slice := range list.Items {
				text := fmt.Sprint(*slice.Ports[0].Port)
				for _, e := range slice.Endpoints {
					text += fmt.Sprint(" ", e.Addresses[0], " ", *e.Conditions.Ready)
				}
				all = append(all, text)
			}
			return strings.Join(all, "; ") == want, all
		})
	}
	patch := func(body string) {
		t.Helper()
		if _, err := endpoints.Patch(t.Context(), "old", types.MergePatchType, []byte(body),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	must[*corev1.Endpoints](t)(endpoints.Create(t.Context(), &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Name: "old"},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{
				{IP: "192.0.2.10"},
			}, NotReadyAddresses: []corev1.EndpointAddress{{IP: "192.0.2.11"}},
			Ports: []corev1.EndpointPort{{Port: 5432}},
		}},
	}, metav1.CreateOptions{}))
	must[*corev1.Service](t)(services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: "old",
		}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 5432}}}}, metav1.CreateOptions{}))
	see("5432 192.0.2.10 true 192.0.2.11 false")
	patch(`{"subsets":[{"addresses":[{"ip":"192.0.2.12"}],"ports":[{"port":5432}]}]}`)
	see("5432 192.0.2.12 true")
	patch(`{"metadata":{"labels":{"endpointslice.kubernetes.io/skip-mirror":"true"}}}`)
	see("")
	patch(`{"metadata":{"labels":{"endpointslice.kubernetes.io/skip-mirror":null}}}`)
	see("5432 192.0.2.12 true")

	many := make([]string, 1003)
	for i := range many {
		many[i] = fmt.Sprintf(`{"ip":"198.51.%d.%d"}`, i/250, i%250+1)
	}
	patch(`{"subsets":[{"addresses":[` + strings.Join(many, ",") + `],"ports":[{"port":5432}]}]}`)
	waitFor(t, "an event that tells of the addresses that are left out", func(ctx context.Context) (bool, any) {
		list, err := sharedClient.CoreV1().
			Events(ns).
			List(ctx, metav1.ListOptions{FieldSelector: "reason=TooManyAddressesToMirror"})
		if err != nil || len(list.Items) == 0 {
			return false, err
		}
		e := list.Items[0]
		return e.Message == "A max of 1000 addresses can be mirrored to EndpointSlices per Endpoints subset. 3 "+
			"addresses were skipped" &&
			e.InvolvedObject.Kind == "Endpoints" && e.InvolvedObject.Name == "old" &&
			e.Source.Component == "endpoint-slice-mirroring-controller", e
	})
	patch(`{"subsets":[{"addresses":[{"ip":"192.0.2.12"}],"ports":[{"port":5432}]}]}`)
	see("5432 192.0.2.12 true")
	if err := services.Delete(t.Context(), "old", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	see("")
	must[*corev1.Endpoints](t)(
		endpoints.Get(t.Context(), "old", metav1.GetOptions{}),
	) // the controllers must not delete it
}

func TestTrafficDistributionSetsHints(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	near := corev1.ServiceTrafficDistributionPreferSameNode
	must[*corev1.Service](t)(sharedClient.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "near"},
		Spec: corev1.ServiceSpec{
			Selector:            map[string]string{"app": "near"},
			TrafficDistribution: &near,
			Ports:               []corev1.ServicePort{{Port: 80}},
		},
	}, metav1.CreateOptions{}))
	must[*corev1.Pod](t)(sharedClient.CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:   "near",
			Labels: map[string]string{"app": "near"},
		}, Spec: podSpec()}, metav1.CreateOptions{}))
	hinted := func(want bool) {
		t.Helper()
		waitFor(t, fmt.Sprintf("the endpoint's hint to be there: %v", want), func(ctx context.Context) (bool, any) {
			list, err := sharedClient.DiscoveryV1().
				EndpointSlices(ns).
				List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=near"})
			if err != nil || len(list.Items) != 1 || len(list.Items[0].Endpoints) != 1 ||
				!*list.Items[0].Endpoints[0].Conditions.Ready {
				return false, err
			}
			slice := list.Items[0]
			e := slice.Endpoints[0]
			if slice.Annotations[corev1.EndpointsLastChangeTriggerTime] == "" && want {
				return false, slice.Annotations
			}
			return want == (e.Hints != nil && len(e.Hints.ForNodes) == 1 && e.Hints.ForNodes[0].Name == *e.NodeName), e
		})
	}
	hinted(true)
	if _, err := sharedClient.CoreV1().Services(ns).Patch(t.Context(), "near", types.MergePatchType, []byte(`{"spec":{"trafficDistribution":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	hinted(false)
}
