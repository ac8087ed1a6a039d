package network

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Nodes have packet rules for each peer with each port, so that a policy of a megabyte could have millions.
func TestCombinationsOfPeersAndPortsAreLimited(t *testing.T) {
	policy := func(peers, ports int) *networkingv1.NetworkPolicy {
		rule := networkingv1.NetworkPolicyIngressRule{}
		for range peers {
			rule.From = append(rule.From, networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}})
		}
		for i := range ports {
			port := intstr.FromInt(i + 1)
			rule.Ports = append(rule.Ports, networkingv1.NetworkPolicyPort{Port: &port})
		}
		p := &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{
			Ingress: []networkingv1.NetworkPolicyIngressRule{rule}}}
		defaultNetworkPolicy(p)
		return p
	}
	for _, row := range []struct {
		p, old  *networkingv1.NetworkPolicy
		refused bool
	}{
		{policy(100, 100), nil, false}, {policy(101, 100), nil, true}, {policy(10_001, 0), nil, true},
		{policy(0, 10_000), nil, false}, {policy(101, 100), policy(200, 200), false},
		{policy(201, 200), policy(200, 200), true},
	} {
		errs := validateNetworkPolicy(row.p, row.old)
		if row.refused != (len(errs) == 1 && strings.Contains(errs[0].Detail, "combinations of peers and ports")) ||
			!row.refused && len(errs) > 0 {
			t.Errorf("%d combinations after %d: %v", countPolicyRules(row.p), countPolicyRules(row.old), errs)
		}
	}
}
