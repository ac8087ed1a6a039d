// Package policy generates the packet rules of network policies for one machine. Its inputs are the policies, the
// machine's pods, and the addresses of the groups of pods that policies select as peers. It maintains one table per
// address family, made of fragments, so that a change costs only the fragments of the changed policy, pod or group. Its
// callers deliver the inputs and write the tables to the kernel.
//
// A forwarded packet passes two chains: the egress policies of its sender, if that is a pod of this machine, and the
// ingress policies of its receiver, likewise. The machine of the other pod checks the other end. Accepted connections
// continue when policies change. Packets between the machine itself and its pods pass none of these chains.
package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	netutils "k8s.io/utils/net"

	"clusterctl/daemons/api/peers"
	"clusterctl/daemons/nft"
)

// direction is the direction of a pod's packets.
type direction uint8

const (
	directionIngress direction = iota
	directionEgress
)

var directions = []direction{directionIngress, directionEgress}

func (d direction) String() string {
	if d == directionEgress {
		return "egress"
	}
	return "ingress"
}

// parsedPolicy is a parsed NetworkPolicy.
type parsedPolicy struct {
	key        string // namespace/name
	pods       labels.Selector
	isolates   [2]bool // by direction
	rules      [2][]peerRule
	groups     [2][]string // by direction: names of the groups whose addresses are needed
	namedPorts []namedPort // named ports in ingress rules, whose numbers depend on the pod
}

// peerRule accepts packets of its peers to its ports.
type peerRule struct {
	hasAllPeers  bool       // it has no peers, so it matches all
	groups       []string   // names of the groups of selected peers
	blocks       rangeList  // peers by address
	allPodsGroup string     // group in which an egress rule looks up named ports of peers without a group
	anyPort      bool       // it has no ports, so it matches all
	ports        []portRule // it matches any of these
}

// portRule matches ports of one protocol: all, a range, or a named port.
type portRule struct {
	namedPort
	first, last uint16
}

// namedPort is a named port with its protocol. Name is empty for a numeric port.
type namedPort struct {
	Name     string
	Protocol uint8
}

// parsePolicy parses a NetworkPolicy. It returns an error for invalid parts, which the API server would reject.
func parsePolicy(p *networkingv1.NetworkPolicy) (*parsedPolicy, error) {
	pods, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	if err != nil {
		return nil, fmt.Errorf("read the pod selector of the network policy %s/%s: %w", p.Namespace, p.Name, err)
	}
	out := &parsedPolicy{key: p.Namespace + "/" + p.Name, pods: pods}
	types := p.Spec.PolicyTypes
	out.isolates[directionIngress] = len(types) == 0 || slices.Contains(types, networkingv1.PolicyTypeIngress)
	out.isolates[directionEgress] = len(types) == 0 && len(p.Spec.Egress) > 0 ||
		slices.Contains(types, networkingv1.PolicyTypeEgress)
	var problems []error
	add := func(d direction, from []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
		r, err := parseRule(p.Namespace, d, from, ports)
		if err != nil {
			problems = append(problems, fmt.Errorf("read the network policy %s: %w", out.key, err))
		}
		out.rules[d] = append(out.rules[d], r)
		out.groups[d] = append(out.groups[d], r.groups...)
		if r.allPodsGroup != "" {
			out.groups[d] = append(out.groups[d], r.allPodsGroup)
		}
		for _, at := range r.ports {
			if d == directionIngress && at.Name != "" && !slices.Contains(out.namedPorts, at.namedPort) {
				out.namedPorts = append(out.namedPorts, at.namedPort)
			}
		}
	}
	if out.isolates[directionIngress] {
		for _, r := range p.Spec.Ingress {
			add(directionIngress, r.From, r.Ports)
		}
	}
	if out.isolates[directionEgress] {
		for _, r := range p.Spec.Egress {
			add(directionEgress, r.To, r.Ports)
		}
	}
	for _, d := range directions {
		slices.Sort(out.groups[d])
		out.groups[d] = slices.Compact(out.groups[d])
	}
	slices.SortFunc(out.namedPorts, func(a, b namedPort) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return int(a.Protocol) - int(b.Protocol)
	})
	return out, errors.Join(problems...)
}

func parseRule(
	namespace string,
	d direction,
	from []networkingv1.NetworkPolicyPeer,
	ports []networkingv1.NetworkPolicyPort,
) (r peerRule, err error) {
	r = peerRule{hasAllPeers: len(from) == 0, anyPort: len(ports) == 0}
	var names []string
	if d == directionEgress {
		names = peers.PortNames(ports)
	}
	var problems []error
	var cidrs [][]addressRange
	for _, peer := range from {
		if g, ok := peers.OfPeer(namespace, peer, names); ok {
			r.groups = append(r.groups, g.Name())
			continue
		}
		b, err := parseBlock(peer.IPBlock)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		cidrs = append(cidrs, b)
	}
	r.blocks = mergeRanges(cidrs)
	if len(names) > 0 && (r.hasAllPeers || len(r.blocks) > 0) {
		r.allPodsGroup = peers.AllPods(names).Name()
	}
	for _, p := range ports {
		r.ports = append(r.ports, parsePort(p))
	}
	return r, errors.Join(problems...)
}

func parsePort(p networkingv1.NetworkPolicyPort) portRule {
	out := portRule{namedPort: namedPort{Protocol: nft.TCP}}
	if p.Protocol != nil {
		out.Protocol = protocolNumber(*p.Protocol)
	}
	switch {
	case p.Port == nil:
		out.last = 65535
	case p.Port.StrVal != "":
		out.Name = p.Port.StrVal
	default:
		out.first, out.last = uint16(p.Port.IntVal), uint16(p.Port.IntVal)
		if p.EndPort != nil {
			out.last = uint16(*p.EndPort)
		}
	}
	return out
}

// protocolNumber returns the number of a protocol.
func protocolNumber(p corev1.Protocol) uint8 {
	switch p {
	case corev1.ProtocolUDP:
		return nft.UDP
	case corev1.ProtocolSCTP:
		return nft.SCTP
	}
	return nft.TCP
}

// parsePrefix parses a network as leniently as the API server: it accepts host bits and leading zeros.
func parsePrefix(s string) (netip.Prefix, error) {
	_, n, err := netutils.ParseCIDRSloppy(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("read the block %q: %w", s, err)
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	if !ok {
		return netip.Prefix{}, fmt.Errorf("read the block %q: it has no address", s)
	}
	if a.Is4In6() && ones >= 96 {
		a, ones = a.Unmap(), ones-96
	}
	return netip.PrefixFrom(a, ones).Masked(), nil
}
