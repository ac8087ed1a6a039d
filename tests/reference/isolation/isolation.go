// Package isolation implements the specification of network policies slowly and sentence by sentence. Tests compare it
// with what the rules of the data plane decide. It draws clusters, and decides for every packet whether it may pass. It
// does not depend on how the rules are made.
package isolation

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"clusterctl/daemons/api/peers"
)

// Cluster is everything that the specification refers to.
type Cluster struct {
	Namespaces map[string]map[string]string // labels, by name
	Pods       map[string]*Pod              // by UID
	Policies   map[string]*networkingv1.NetworkPolicy
}

// Pod is a pod on the machine under test, or on another machine.
type Pod struct {
	Namespace, Name string
	Labels          map[string]string
	Addresses       []netip.Addr
	Ports           []Port
	IsLocal         bool
}

// Port is a named port of a container.
type Port struct {
	Name     string
	Protocol uint8
	Number   uint16
}

// Packet is the first packet of a connection.
type Packet struct {
	From, To netip.Addr
	Protocol uint8
	Port     uint16
}

// Allows follows the specification: a packet from or to a pod of this machine may pass if the policies at both ends
// allow it.
func (c *Cluster) Allows(p Packet) bool {
	from, to := c.PodAt(p.From), c.PodAt(p.To)
	if from != nil && from == to {
		return true
	}
	if from != nil && from.IsLocal && !c.allows(from, to, p, networkingv1.PolicyTypeEgress) {
		return false
	}
	if to != nil && to.IsLocal && !c.allows(to, from, p, networkingv1.PolicyTypeIngress) {
		return false
	}
	return true
}

// PodAt returns the pod that has an address, or nil.
func (c *Cluster) PodAt(a netip.Addr) *Pod {
	for _, m := range c.Pods {
		if slices.Contains(m.Addresses, a) {
			return m
		}
	}
	return nil
}

// allows reports whether the policies of a pod allow a packet. other is the pod at the other end, or nil if it is not a
// pod.
func (c *Cluster) allows(pod, other *Pod, p Packet, kind networkingv1.PolicyType) bool {
	isolated := false
	for _, policy := range c.Policies {
		if policy.Namespace != pod.Namespace || !matchesLabels(&policy.Spec.PodSelector, pod.Labels) {
			continue
		}
		types := policy.Spec.PolicyTypes
		if len(types) == 0 {
			types = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
			if len(policy.Spec.Egress) > 0 {
				types = append(types, networkingv1.PolicyTypeEgress)
			}
		}
		if !slices.Contains(types, kind) {
			continue
		}
		isolated = true
		if kind == networkingv1.PolicyTypeIngress {
			for _, r := range policy.Spec.Ingress {
				if c.matchesPeer(policy.Namespace, r.From, other, p.From) && matchesPort(r.Ports, pod, p) {
					return true
				}
			}
		} else {
			for _, r := range policy.Spec.Egress {
				if c.matchesPeer(policy.Namespace, r.To, other, p.To) && matchesPort(r.Ports, other, p) {
					return true
				}
			}
		}
	}
	return !isolated
}

func (c *Cluster) matchesPeer(namespace string, list []networkingv1.NetworkPolicyPeer, other *Pod, at netip.Addr) bool {
	if len(list) == 0 {
		return true
	}
	for _, peer := range list {
		if b := peer.IPBlock; b != nil {
			in := netip.MustParsePrefix(b.CIDR).Contains(at)
			for _, e := range b.Except {
				in = in && !netip.MustParsePrefix(e).Contains(at)
			}
			if in {
				return true
			}
			continue
		}
		switch {
		case other == nil:
		case peer.NamespaceSelector == nil && other.Namespace != namespace:
		case peer.NamespaceSelector != nil && !matchesLabels(peer.NamespaceSelector, c.Namespaces[other.Namespace]):
		case peer.PodSelector != nil && !matchesLabels(peer.PodSelector, other.Labels):
		default:
			return true
		}
	}
	return false
}

// protocolNumbers are the IP protocol numbers.
var protocolNumbers = map[corev1.Protocol]uint8{corev1.ProtocolTCP: 6, corev1.ProtocolUDP: 17, corev1.ProtocolSCTP: 132}

// matchesPort reports whether a packet goes to one of the ports. A named port is a port of the receiving pod.
func matchesPort(list []networkingv1.NetworkPolicyPort, receiver *Pod, p Packet) bool {
	if len(list) == 0 {
		return true
	}
	for _, at := range list {
		protocol := corev1.ProtocolTCP
		if at.Protocol != nil {
			protocol = *at.Protocol
		}
		if protocolNumbers[protocol] != p.Protocol {
			continue
		}
		switch {
		case at.Port == nil:
			return true
		case at.Port.Type == intstr.String:
			if receiver != nil && slices.Contains(receiver.Ports, Port{at.Port.StrVal, p.Protocol, p.Port}) {
				return true
			}
		case at.EndPort != nil:
			if int32(p.Port) >= at.Port.IntVal && int32(p.Port) <= *at.EndPort {
				return true
			}
		case int32(p.Port) == at.Port.IntVal:
			return true
		}
	}
	return false
}

func matchesLabels(s *metav1.LabelSelector, labels map[string]string) bool {
	for k, v := range s.MatchLabels {
		if labels[k] != v {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		v, there := labels[e.Key]
		in := there && slices.Contains(e.Values, v)
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			if !in {
				return false
			}
		case metav1.LabelSelectorOpNotIn:
			if in {
				return false
			}
		case metav1.LabelSelectorOpExists:
			if !there {
				return false
			}
		case metav1.LabelSelectorOpDoesNotExist:
			if there {
				return false
			}
		}
	}
	return true
}

// Publish calls setGroup for the endpoint slices of the needed groups, as the controller would publish them: one slice
// for each pod.
func (c *Cluster) Publish(
	needed map[string]bool,
	setGroup func(group, slice string, addresses []netip.Addr, ports []Port),
) {
	for _, p := range c.Policies {
		for _, g := range peers.GroupsOf(p) {
			if !needed[g.Name()] {
				continue
			}
			for uid, pod := range c.Pods {
				in := pod.Namespace == g.Namespace
				if g.NamespaceSelector != nil {
					in = matchesLabels(g.NamespaceSelector, c.Namespaces[pod.Namespace])
				}
				if !in || g.PodSelector != nil && !matchesLabels(g.PodSelector, pod.Labels) {
					continue
				}
				var ports []Port
				for _, at := range pod.Ports {
					if slices.Contains(g.Ports, at.Name) {
						ports = append(ports, at)
					}
				}
				setGroup(g.Name(), uid, pod.Addresses, ports)
			}
		}
	}
}
