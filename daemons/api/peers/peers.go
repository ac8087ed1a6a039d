// Package peers defines what the controllers and the machines' network daemons share about the peers of network
// policies. A controller determines the pods of each peer once, and publishes their addresses as EndpointSlices without
// a Service. A machine watches only the slices of groups that the policies of its own pods name.
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
	// Namespace is the namespace of all groups' slices. Otherwise users who may write slices in their own namespace
	// could define the peers of policies.
	Namespace = "kube-system"
	// Label is the label of a slice with its group's name.
	Label = "network.clusterctl.local/peers"
	// Manager is the value of endpointslice.kubernetes.io/managed-by.
	Manager = "networkpolicy-controller.clusterctl.local"
)

// Group is the set of pods that a peer of a policy selects. Policies that select the same pods share it.
type Group struct {
	Namespace         string                // of the pods, if NamespaceSelector is nil
	NamespaceSelector *metav1.LabelSelector // selects namespaces; nil means Namespace
	PodSelector       *metav1.LabelSelector // nil for all pods
	// Ports are the sorted names of container ports in the group's rules. A slice contains the numbers that its pods
	// have for them.
	Ports []string
}

// Name returns a name that is equal for equal groups. It is valid as an object name and as a label value.
func (g Group) Name() string {
	for _, s := range []**metav1.LabelSelector{&g.NamespaceSelector, &g.PodSelector} {
		if *s != nil {
			*s = canonicalSelector(*s)
		}
	}
	if g.PodSelector != nil && len(g.PodSelector.MatchLabels)+len(g.PodSelector.MatchExpressions) == 0 {
		g.PodSelector = nil
	}
	text, err := json.Marshal(g)
	if err != nil {
		panic(err) // impossible: the group consists of strings
	}
	sum := sha256.Sum256(text)
	return "peers-" + strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:15]))
}

// canonicalSelector returns a copy of a selector in a canonical order.
func canonicalSelector(s *metav1.LabelSelector) *metav1.LabelSelector {
	s = s.DeepCopy()
	for i := range s.MatchExpressions {
		slices.Sort(s.MatchExpressions[i].Values)
	}
	slices.SortFunc(s.MatchExpressions,
		func(a, b metav1.LabelSelectorRequirement) int { return strings.Compare(a.String(), b.String()) })
	return s
}

// OfPeer returns the group that a peer of a rule selects. It returns false for an IP block. ports are the names in the
// rule's ports, for egress rules. For ingress rules they are looked up in the pod itself.
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

// AllPods returns the group of all pods in all namespaces. An egress rule that selects no pods, because it has no
// peers or only IP blocks, looks up named ports in it.
func AllPods(ports []string) Group {
	return Group{NamespaceSelector: &metav1.LabelSelector{}, Ports: ports}
}

// PortNames returns the names among a rule's ports, sorted and without duplicates.
func PortNames(ports []networkingv1.NetworkPolicyPort) (names []string) {
	for _, p := range ports {
		if p.Port != nil && p.Port.StrVal != "" {
			names = append(names, p.Port.StrVal)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// GroupsOf returns the groups that a policy selects, without duplicates.
func GroupsOf(p *networkingv1.NetworkPolicy) []Group {
	var all []Group
	for _, r := range p.Spec.Ingress {
		for _, from := range r.From {
			if g, ok := OfPeer(p.Namespace, from, nil); ok {
				all = append(all, g)
			}
		}
	}
	for _, r := range p.Spec.Egress {
		names := PortNames(r.Ports)
		everybody := len(r.To) == 0
		for _, to := range r.To {
			if g, ok := OfPeer(p.Namespace, to, names); ok {
				all = append(all, g)
			} else {
				everybody = true
			}
		}
		if everybody && len(names) > 0 {
			all = append(all, AllPods(names))
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
