package policy

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"clusterctl/daemons/nft"
)

// Pod is a pod of this machine with its own network.
type Pod struct {
	Namespace, Name string
	Labels          map[string]string
	Addresses       []netip.Addr
	Ports           []Port    // named ports, in the order of the pod's containers
	Turn            uint64    // of two pods that claim an address, the one with the higher turn gets it
	Created         time.Time // with equal turns, the pod that was created later gets it
}

// Port is a named port of a container.
type Port struct {
	Name     string
	Protocol uint8
	Number   uint16
}

// PodOf returns the inputs of the rules for a pod. It returns false if policies do not apply, because the pod uses the
// host's network or has ended.
func PodOf(p *corev1.Pod) (Pod, bool) {
	if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return Pod{}, false
	}
	out := Pod{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Created: p.CreationTimestamp.Time}
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			out.Addresses = append(out.Addresses, a.Unmap())
		}
	}
	containers := slices.Clone(p.Spec.Containers)
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(containers, c) // a sidecar
		}
	}
	for _, c := range containers {
		for _, at := range c.Ports {
			if at.Name != "" {
				out.Ports = append(out.Ports, Port{at.Name, protocolNumber(at.Protocol), uint16(at.ContainerPort)})
			}
		}
	}
	return out, true
}

// podState is a pod with its state in the tables.
type podState struct {
	Pod
	uid      string
	deleted  bool
	selected map[string]bool // keys of the policies that select it
	chains   [2]string       // lists of chains by direction, "" for none
	inTables []netip.Addr    // its addresses in the tables
}

// hasSameRules reports whether two pods have the same rules.
func (p Pod) hasSameRules(o Pod) bool {
	return p.Namespace == o.Namespace && p.Name == o.Name && p.Turn == o.Turn && p.Created.Equal(o.Created) &&
		labels.Equals(p.Labels, o.Labels) && slices.Equal(p.Addresses, o.Addresses) && slices.Equal(p.Ports, o.Ports)
}

// resolve returns the numbers of named ports in the pod.
func (p Pod) resolve(list []namedPort) portNumbers {
	out := portNumbers{}
	for _, n := range list {
		for _, at := range p.Ports {
			if at.Name == n.Name && at.Protocol == n.Protocol && !slices.Contains(out[n], at.Number) {
				out[n] = append(out[n], at.Number)
			}
		}
	}
	return out
}

// isSupersededBy reports whether o, not p, gets an address that both claim.
func (p *podState) isSupersededBy(o *podState) bool {
	switch {
	case p.Turn != o.Turn:
		return p.Turn < o.Turn
	case !p.Created.Equal(o.Created):
		return p.Created.Before(o.Created)
	}
	return p.uid < o.uid
}

// fragment returns a pod's elements in a family's table for the given addresses.
func (p *podState) fragment(f nft.Family, addresses []netip.Addr) *nft.Fragment {
	elements := map[string][]nft.Element{}
	add := func(set string, k nft.Key, v nft.Value) {
		elements[set] = append(elements[set], nft.Element{Key: k, Value: v})
	}
	for _, a := range addresses {
		if !isOfFamily(a, f) {
			continue
		}
		one := nft.SingleAddress(a)
		add(knownPodSet, nft.Key{Source: one}, nft.Value{})
		add(selfSet, nft.Key{Source: one, Destination: one}, nft.Value{})
		if name := p.chains[directionEgress]; name != "" {
			// A jump, because the receiver's policies are checked afterwards.
			add(egressMap, nft.Key{Source: one}, nft.VerdictValue("jump", name))
		}
		if name := p.chains[directionIngress]; name != "" {
			add(ingressMap, nft.Key{Destination: one}, nft.VerdictValue("goto", name))
		}
	}
	if p.chains[directionIngress] != "" && len(elements) > 0 {
		add(multicastSet, nft.Key{Destination: multicastAddresses(f)}, nft.Value{})
	}
	if len(elements) == 0 {
		return nil
	}
	return &nft.Fragment{Elements: elements}
}
