// Package policy works out the packet rules of network policies on one machine. It is told of policies, of the
// machine's pods and of the addresses of the groups that policies' peers mean, and keeps a table of rules per family of
// addresses, in fragments: a policy, a pod or a group that changes costs what it has in them. Who tells it, and how the
// rules come into the kernel, is others' business.
//
// A packet that one machine passes on is looked at in two chains, one after the other: by what its sender may send, if
// that is a pod of this machine, and by what its receiver may get, likewise. The other end of a connection is looked at
// by the other's machine. Connections that were let through go on, whatever policies come later; what the machine
// itself sends to its pods and gets from them passes none of these chains.
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

// direction is which of a pod's packets a rule is about.
type direction uint8

const (
	ingress direction = iota
	egress
)

var directions = []direction{ingress, egress}

func (d direction) String() string {
	if d == egress {
		return "egress"
	}
	return "ingress"
}

// policy is a NetworkPolicy as rules are made of it.
type policy struct {
	key      string // namespace/name
	pods     labels.Selector
	isolates [2]bool // by direction
	rules    [2][]rule
	groups   [2][]string // the names of those whose addresses are needed
	named    []namedPort // what rules of ingress call ports, which every pod reads in its own way
}

// rule lets packets of some peers through, to some ports.
type rule struct {
	anyone    bool       // it names no peers
	groups    []string   // peers by what they are, as names of groups
	blocks    blocks     // peers by address
	everybody string     // the group that a rule of egress looks in for named ports of peers that are no group
	anyPort   bool       // it names no ports
	ports     []portRule // to any of these
}

// portRule is ports of one protocol: all, some from first to last, or those that pods call by a name.
type portRule struct {
	namedPort
	first, last uint16
}

// namedPort is what a pod calls a port of a protocol; Name is empty for none.
type namedPort struct {
	Name     string
	Protocol uint8
}

// read reads a NetworkPolicy. An error says what in it is no policy; the API server lets none of that in.
func read(p *networkingv1.NetworkPolicy) (*policy, error) {
	pods, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
	if err != nil {
		return nil, fmt.Errorf("read the pod selector of the network policy %s/%s: %w", p.Namespace, p.Name, err)
	}
	out := &policy{key: p.Namespace + "/" + p.Name, pods: pods}
	types := p.Spec.PolicyTypes
	out.isolates[ingress] = len(types) == 0 || slices.Contains(types, networkingv1.PolicyTypeIngress)
	out.isolates[egress] = len(types) == 0 && len(p.Spec.Egress) > 0 ||
		slices.Contains(types, networkingv1.PolicyTypeEgress)
	var problems []error
	add := func(d direction, from []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
		r, err := readRule(p.Namespace, d, from, ports)
		if err != nil {
			problems = append(problems, fmt.Errorf("read the network policy %s: %w", out.key, err))
		}
		out.rules[d] = append(out.rules[d], r)
		out.groups[d] = append(out.groups[d], r.groups...)
		if r.everybody != "" {
			out.groups[d] = append(out.groups[d], r.everybody)
		}
		for _, at := range r.ports {
			if d == ingress && at.Name != "" && !slices.Contains(out.named, at.namedPort) {
				out.named = append(out.named, at.namedPort)
			}
		}
	}
	if out.isolates[ingress] {
		for _, r := range p.Spec.Ingress {
			add(ingress, r.From, r.Ports)
		}
	}
	if out.isolates[egress] {
		for _, r := range p.Spec.Egress {
			add(egress, r.To, r.Ports)
		}
	}
	for _, d := range directions {
		slices.Sort(out.groups[d])
		out.groups[d] = slices.Compact(out.groups[d])
	}
	slices.SortFunc(out.named, func(a, b namedPort) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return int(a.Protocol) - int(b.Protocol)
	})
	return out, errors.Join(problems...)
}

func readRule(
	namespace string,
	d direction,
	from []networkingv1.NetworkPolicyPeer,
	ports []networkingv1.NetworkPolicyPort,
) (r rule, err error) {
	r = rule{anyone: len(from) == 0, anyPort: len(ports) == 0}
	var names []string
	if d == egress {
		names = peers.Named(ports)
	}
	var problems []error
	var cidrs [][]span
	for _, peer := range from {
		if g, ok := peers.OfPeer(namespace, peer, names); ok {
			r.groups = append(r.groups, g.Name())
			continue
		}
		b, err := readBlock(peer.IPBlock)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		cidrs = append(cidrs, b)
	}
	r.blocks = merge(cidrs)
	if len(names) > 0 && (r.anyone || len(r.blocks) > 0) {
		r.everybody = peers.Everybody(names).Name()
	}
	for _, p := range ports {
		r.ports = append(r.ports, readPort(p))
	}
	return r, errors.Join(problems...)
}

func readPort(p networkingv1.NetworkPolicyPort) portRule {
	out := portRule{namedPort: namedPort{Protocol: nft.TCP}}
	if p.Protocol != nil {
		out.Protocol = number(*p.Protocol)
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

// number is a protocol's number.
func number(p corev1.Protocol) uint8 {
	switch p {
	case corev1.ProtocolUDP:
		return nft.UDP
	case corev1.ProtocolSCTP:
		return nft.SCTP
	}
	return nft.TCP
}

// prefix reads a network as the API server does: with what the address has after the network's part, and zeros before
// numbers.
func prefix(s string) (netip.Prefix, error) {
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
