package peers

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestEqualGroupsHaveOneName(t *testing.T) {
	in := func(values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "In", Values: values}},
		}
	}
	same := [][2]Group{
		{{Namespace: "x", PodSelector: in("1", "2")}, {Namespace: "x", PodSelector: in("2", "1")}},
		{{Namespace: "x", PodSelector: &metav1.LabelSelector{}}, {Namespace: "x"}},
	}
	for _, g := range same {
		if g[0].Name() != g[1].Name() {
			t.Errorf("%v and %v have two names", g[0], g[1])
		}
	}
	other := []Group{
		{Namespace: "x"},
		{Namespace: "y"},
		{NamespaceSelector: &metav1.LabelSelector{}},
		{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: in("1")},
		AllPods([]string{"http"}),
	}
	names := map[string]bool{}
	for _, g := range other {
		names[g.Name()] = true
	}
	if len(names) != len(other) {
		t.Errorf("%d groups have %d names", len(other), len(names))
	}
}

func TestGroupsOfAPolicy(t *testing.T) {
	named, dns := intstr.FromString("http"), intstr.FromString("dns")
	p := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "x"},
		Spec: networkingv1.NetworkPolicySpec{
			Ingress: []networkingv1.NetworkPolicyIngressRule{
				{Ports: []networkingv1.NetworkPolicyPort{{Port: &named}}, From: []networkingv1.NetworkPolicyPeer{
					{
						PodSelector: &metav1.LabelSelector{},
					}, {IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}}, {PodSelector: &metav1.LabelSelector{}},
				}},
				{},
			},
			Egress: []networkingv1.NetworkPolicyEgressRule{
				{Ports: []networkingv1.NetworkPolicyPort{{Port: &named}}},
				{To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}},
				{
					Ports: []networkingv1.NetworkPolicyPort{{Port: &dns}},
					To:    []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}}},
				},
			},
		},
	}
	got := map[string]bool{}
	for _, g := range GroupsOf(p) {
		got[g.Name()] = true
	}
	want := []Group{
		{Namespace: "x"},
		AllPods([]string{"http"}),
		{NamespaceSelector: &metav1.LabelSelector{}},
		AllPods([]string{"dns"}),
	}
	for _, g := range want {
		if !got[g.Name()] {
			t.Errorf("%v is missing", g)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d groups, want %d", len(got), len(want))
	}
}
