package faults

import (
	"context"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/api/peers"
)

// peersFollow creates policies that select the same pods: by the label of their namespace, by their own labels, and
// with a named port.
func peersFollow(t *testing.T, s *testNamespace) string {
	namespaces, sets := s.client.CoreV1().Namespaces(), s.client.AppsV1().ReplicaSets(s.namespace)
	policies := s.client.NetworkingV1().NetworkPolicies(s.namespace)
	// The pods have the port name for two protocols, which gives two slices.
	named := allowEgress(t, s, "named", networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}}, "dns")
	const stageLabel = "peers-follow"
	near := allowEgress(t, s, "near",
		networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: labels}})
	chosen := allowEgress(
		t, s, "chosen",
		networkingv1.NetworkPolicyPeer{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{stageLabel: "yes"}},
		},
	)
	mark := func(value string) {
		updateObject(t, s, namespaces.Get, namespaces.Update, s.namespace,
			func(ns *corev1.Namespace) { ns.Labels[stageLabel] = value })
	}
	createDNSPods(t, s)
	see := func(what string, pods int, isChosen bool) {
		s.waitFor(t, what, func(ctx context.Context) (bool, any) {
			list, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			var addresses []string
			for _, pod := range list.Items {
				addresses = append(addresses, pod.Status.PodIP)
			}
			nears, _, err := publishedAddresses(ctx, s, near)
			if err != nil {
				return false, err
			}
			chosens, _, err := publishedAddresses(ctx, s, chosen)
			if err != nil {
				return false, err
			}
			nameds, _, err := publishedAddresses(ctx, s, named)
			if err != nil {
				return false, err
			}
			right := sameSet(addresses, chosens)
			if !isChosen {
				right = len(chosens) == 0
			}
			return len(addresses) == pods && sameSet(addresses, nears) &&
				sameSet(slices.Concat(addresses, addresses), nameds) &&
				right, fmt.Sprint(addresses, nears, chosens, nameds)
		})
	}
	see("three pods in a namespace that is not chosen", 3, false)
	mark("yes")
	see("three pods in a chosen namespace", 3, true)
	for _, n := range []int32{8, 0, 4} {
		updateObject(t, s, sets.Get, sets.Update, "web", func(r *appsv1.ReplicaSet) { r.Spec.Replicas = &n })
		see(fmt.Sprintf("%d pods in a chosen namespace", n), int(n), true)
	}
	mark("no")
	see("four pods in a namespace that is no longer chosen", 4, false)
	s.waitFor(t, "a policy to go", func(ctx context.Context) (bool, any) {
		err := policies.Delete(ctx, "near", metav1.DeleteOptions{})
		_, n, failed := publishedAddresses(ctx, s, near)
		return failed == nil && n == 0, fmt.Sprint(err, n, failed)
	})
	// The slices of peers do not belong to services, so no Endpoints are created for them.
	old, err := s.client.CoreV1().
		Endpoints(peers.Namespace).
		List(t.Context(), metav1.ListOptions{LabelSelector: peers.Label})
		//nolint:staticcheck // what is deprecated is kept right, too
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("the addresses of four pods, and %d Endpoints", len(old.Items))
}

// createDNSPods creates three pods that have the port dns for two protocols.
func createDNSPods(t *testing.T, s *testNamespace) {
	set := newReplicaSet(3)
	first := &set.Spec.Template.Spec.Containers[0]
	first.Ports = []corev1.ContainerPort{{Name: "dns", ContainerPort: 53}}
	second := *first.DeepCopy()
	second.Name, second.Ports[0].Protocol = "d", corev1.ProtocolUDP
	set.Spec.Template.Spec.Containers = append(set.Spec.Template.Spec.Containers, second)
	if _, err := s.client.AppsV1().ReplicaSets(s.namespace).Create(t.Context(), set,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// publishedAddresses returns the addresses of a group, and the number of its slices.
func publishedAddresses(ctx context.Context, s *testNamespace, group string) (all []string, n int, err error) {
	list, err := s.client.DiscoveryV1().
		EndpointSlices(peers.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: peers.Label + "=" + group})
	if err != nil {
		return nil, 0, err
	}
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			all = append(all, e.Addresses...)
		}
	}
	return all, len(list.Items), nil
}

// allowEgress creates a policy that allows a peer, and returns the name of its group.
func allowEgress(t *testing.T, s *testNamespace, name string, peer networkingv1.NetworkPolicyPeer,
	ports ...string) (group string) {
	to := networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{peer}}
	for _, port := range ports {
		to.Ports = append(to.Ports, networkingv1.NetworkPolicyPort{Port: ptr.To(intstr.FromString(port))})
	}
	p := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       networkingv1.NetworkPolicySpec{Egress: []networkingv1.NetworkPolicyEgressRule{to}},
	}
	if _, err := s.client.NetworkingV1().NetworkPolicies(s.namespace).Create(t.Context(), p,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	g, _ := peers.OfPeer(s.namespace, peer, ports)
	return g.Name()
}
