package policy

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"clusterctl/daemons/nft"
)

// Pod is a pod of this machine with a network of its own.
type Pod struct {
	Namespace, Name string
	Labels          map[string]string
	Addresses       []netip.Addr
	Ports           []Port    // with a name, in the order of the pod's containers
	Turn            uint64    // the pod with the higher one has an address that both claim
	Created         time.Time // and of those with the same, the one that was created later
}

// Port is a port that a container of a pod has a name for.
type Port struct {
	Name     string
	Protocol uint8
	Number   uint16
}

// PodOf returns what rules depend on of a pod, and false for one that no policy is about: it has its machine's
// addresses, or has ended.
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
			containers = append(containers, c) // it runs beside the others
		}
	}
	for _, c := range containers {
		for _, at := range c.Ports {
			if at.Name != "" {
				out.Ports = append(out.Ports, Port{at.Name, number(at.Protocol), uint16(at.ContainerPort)})
			}
		}
	}
	return out, true
}

// pod is what is known of a pod, and what it has in the tables.
type pod struct {
	Pod
	uid      string
	gone     bool
	selected map[string]bool // policies, by key
	chains   [2]string       // the lists of chains that its packets go through, "" for none
	placed   []netip.Addr    // the addresses that the tables have
}

// same reports whether a pod's rules are the same as another's.
func (p Pod) same(o Pod) bool {
	return p.Namespace == o.Namespace && p.Name == o.Name && p.Turn == o.Turn && p.Created.Equal(o.Created) &&
		labels.Equals(p.Labels, o.Labels) && slices.Equal(p.Addresses, o.Addresses) && slices.Equal(p.Ports, o.Ports)
}

// resolve are the numbers of named ports in the pod.
func (p Pod) resolve(list []namedPort) resolved {
	out := resolved{}
	for _, n := range list {
		for _, at := range p.Ports {
			if at.Name == n.Name && at.Protocol == n.Protocol && !slices.Contains(out[n], at.Number) {
				out[n] = append(out[n], at.Number)
			}
		}
	}
	return out
}

// before reports whether another pod has an address that both claim.
func (p *pod) before(o *pod) bool {
	switch {
	case p.Turn != o.Turn:
		return p.Turn < o.Turn
	case !p.Created.Equal(o.Created):
		return p.Created.Before(o.Created)
	}
	return p.uid < o.uid
}

// fragment is what a pod with some addresses has in a family's table.
func (p *pod) fragment(f nft.Family, addresses []netip.Addr) *nft.Fragment {
	elements := map[string][]nft.Element{}
	add := func(set string, k nft.Key, v nft.Value) {
		elements[set] = append(elements[set], nft.Element{Key: k, Value: v})
	}
	for _, a := range addresses {
		if !of(a, f) {
			continue
		}
		one := nft.One(a)
		add(knownPods, nft.Key{Source: one}, nft.Value{})
		add(toItself, nft.Key{Source: one, Destination: one}, nft.Value{})
		if name := p.chains[egress]; name != "" {
			add(egressPods, nft.Key{Source: one}, nft.Goes("jump", name)) // the receiver's policies come after it
		}
		if name := p.chains[ingress]; name != "" {
			add(ingressPods, nft.Key{Destination: one}, nft.Goes("goto", name))
		}
	}
	if p.chains[ingress] != "" && len(elements) > 0 {
		add(toMany, nft.Key{Destination: many(f)}, nft.Value{})
	}
	if len(elements) == 0 {
		return nil
	}
	return &nft.Fragment{Elements: elements}
}
