// Package peers is what the controllers and the machines' network daemons have to agree on about the peers of network
// policies. Which pods a peer means is worked out once, by a controller, which publishes their addresses as
// EndpointSlices of no service; a machine watches the slices of those groups alone that policies of its own pods name.
package peers

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// Namespace has the slices of all groups: who may write slices in a namespace of their own must not be able to say
	// who a policy's peers are.
	Namespace = "kube-system"
	// Label of a slice is its group's name.
	Label = "network.clusterctl.local/peers"
	// Manager is the value of endpointslice.kubernetes.io/managed-by.
	Manager = "networkpolicy-controller.clusterctl.local"
)

// Group is pods that a peer of some policy means. Policies that mean the same pods share it.
type Group struct {
	Namespace         string                // of the pods, where no selector chooses namespaces
	NamespaceSelector *metav1.LabelSelector // of namespaces, else nil
	PodSelector       *metav1.LabelSelector // nil for all pods
	// names of container ports that rules for the group name, sorted; a slice says which numbers its pods have for them
	Ports []string
}

// Name is the same for groups that mean the same, and good as the name of an object and as a label's value.
func (g Group) Name() string {
	for _, s := range []**metav1.LabelSelector{&g.NamespaceSelector, &g.PodSelector} {
		if *s != nil {
			*s = ordered(*s)
		}
	}
	if g.PodSelector != nil && len(g.PodSelector.MatchLabels)+len(g.PodSelector.MatchExpressions) == 0 {
		g.PodSelector = nil
	}
	text, err := json.Marshal(g)
	if err != nil {
		panic(err) // strings alone
	}
	sum := sha256.Sum256(text)
	return "peers-" + strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:15]))
}

// ordered is the selector in the one order that all of its writings have in common.
func ordered(s *metav1.LabelSelector) *metav1.LabelSelector {
	s = s.DeepCopy()
	for i := range s.MatchExpressions {
		slices.Sort(s.MatchExpressions[i].Values)
	}
	slices.SortFunc(
		s.MatchExpressions,
		func(a, b metav1.LabelSelectorRequirement) int { return strings.Compare(a.String(), b.String()) },
	)
	return s
}

// OfPeer is the group that a peer of a rule in a namespace means, and false for a block of addresses. ports are the
// names in the rule's ports, for rules of egress; those of ingress are looked up in the pod itself.
func OfPeer(namespace string, p networkingv1.NetworkPolicyPeer, ports []string) (Group, bool) {
	if p.IPBlock != nil {
		return Group{}, false
	}
	g := Group{PodSelector: p.PodSelector, NamespaceSelector: p.NamespaceSelector, Ports: ports}
	if p.NamespaceSelector == nil {
		g.Namespace = namespace
	}
	return g, true
}

// Everybody is all pods of all namespaces, among whom a rule of egress looks for named ports where it names no pods: no
// peers, or blocks.
func Everybody(ports []string) Group {
	return Group{NamespaceSelector: &metav1.LabelSelector{}, Ports: ports}
}

// Named are the names among a rule's ports, sorted and each once.
func Named(ports []networkingv1.NetworkPolicyPort) (names []string) {
	for _, p := range ports {
		if p.Port != nil && p.Port.StrVal != "" {
			names = append(names, p.Port.StrVal)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Of are the groups that a policy names, each once.
func Of(p *networkingv1.NetworkPolicy) []Group {
	var all []Group
	for _, r := range p.Spec.Ingress {
		for _, from := range r.From {
			if g, ok := OfPeer(p.Namespace, from, nil); ok {
				all = append(all, g)
			}
		}
	}
	for _, r := range p.Spec.Egress {
		names := Named(r.Ports)
		everybody := len(r.To) == 0
		for _, to := range r.To {
			if g, ok := OfPeer(p.Namespace, to, names); ok {
				all = append(all, g)
			} else {
				everybody = true
			}
		}
		if everybody && len(names) > 0 {
			all = append(all, Everybody(names))
		}
	}
	var once []Group
	seen := map[string]bool{}
	for _, g := range all {
		if n := g.Name(); !seen[n] {
			seen[n] = true
			once = append(once, g)
		}
	}
	return once
}
