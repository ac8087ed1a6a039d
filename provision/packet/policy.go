package packet

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// DeniedBy returns the policies that isolate a pod in a direction, if none of them allows the packet; otherwise it
// returns nil. The other end has the address at, and is the pod other, or no pod if other is nil. receiver is the pod
// that receives the packet on port.
func (c *Cluster) DeniedBy(
	pod, other *corev1.Pod,
	at netip.Addr,
	direction networkingv1.PolicyType,
	receiver *corev1.Pod,
	protocol string,
	port uint16,
) (names []string) {
	for i := range c.Policies {
		p := &c.Policies[i]
		if p.Namespace != pod.Namespace || !matchesLabels(&p.Spec.PodSelector, pod.Labels) ||
			!slices.Contains(directions(p), direction) {
			continue
		}
		names = append(names, p.Namespace+"/"+p.Name)
		if direction == networkingv1.PolicyTypeIngress {
			for _, r := range p.Spec.Ingress {
				if c.matchesPeers(p.Namespace, r.From, other, at) && matchesPorts(r.Ports, receiver, protocol, port) {
					return nil
				}
			}
			continue
		}
		for _, r := range p.Spec.Egress {
			if c.matchesPeers(p.Namespace, r.To, other, at) && matchesPorts(r.Ports, receiver, protocol, port) {
				return nil
			}
		}
	}
	return names
}

func directions(p *networkingv1.NetworkPolicy) []networkingv1.PolicyType {
	if len(p.Spec.PolicyTypes) > 0 {
		return p.Spec.PolicyTypes
	}
	list := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if len(p.Spec.Egress) > 0 {
		list = append(list, networkingv1.PolicyTypeEgress)
	}
	return list
}

// matchesPeers reports whether a list of peers includes the given end. An empty list includes all.
func (c *Cluster) matchesPeers(
	namespace string,
	list []networkingv1.NetworkPolicyPeer,
	other *corev1.Pod,
	at netip.Addr,
) bool {
	return len(list) == 0 || slices.ContainsFunc(list, func(p networkingv1.NetworkPolicyPeer) bool {
		switch {
		case p.IPBlock != nil:
			return cidrContains(p.IPBlock.CIDR, at) &&
				!slices.ContainsFunc(p.IPBlock.Except, func(e string) bool { return cidrContains(e, at) })
		case other == nil:
			return false
		case p.NamespaceSelector == nil && other.Namespace != namespace:
			return false
		case p.NamespaceSelector != nil && !matchesLabels(p.NamespaceSelector, c.namespaceLabels(other.Namespace)):
			return false
		}
		return p.PodSelector == nil || matchesLabels(p.PodSelector, other.Labels)
	})
}

func (c *Cluster) namespaceLabels(name string) map[string]string {
	for _, n := range c.Namespaces {
		if n.Name == name {
			return n.Labels
		}
	}
	return nil
}

func cidrContains(cidr string, a netip.Addr) bool {
	p, err := netip.ParsePrefix(cidr)
	return err == nil && p.Contains(a)
}

// matchesPorts reports whether a list of ports includes the packet's port. An empty list includes all. Named ports are
// those of the receiving pod.
func matchesPorts(list []networkingv1.NetworkPolicyPort, receiver *corev1.Pod, protocol string, port uint16) bool {
	return len(list) == 0 || slices.ContainsFunc(list, func(p networkingv1.NetworkPolicyPort) bool {
		of := corev1.ProtocolTCP
		if p.Protocol != nil {
			of = *p.Protocol
		}
		switch {
		case string(of) != protocol:
			return false
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.String:
			return receiver != nil && slices.ContainsFunc(receiver.Spec.Containers, func(c corev1.Container) bool {
				return slices.ContainsFunc(c.Ports, func(at corev1.ContainerPort) bool {
					return at.Name == p.Port.StrVal && cmp.Or(at.Protocol, corev1.ProtocolTCP) == of &&
						at.ContainerPort == int32(port)
				})
			})
		case p.EndPort != nil:
			return int32(port) >= p.Port.IntVal && int32(port) <= *p.EndPort
		}
		return int32(port) == p.Port.IntVal
	})
}

// matchesLabels reports whether a selector matches labels. An invalid selector matches nothing; the API server does not
// accept any.
func matchesLabels(s *metav1.LabelSelector, set map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(set))
}
