// Package packet says what becomes of a packet between two ends of a cluster: where it may come out, by what machines
// have seen of it how far it came, and what stops it there. Machines are asked by provision/run, the API by
// provision/workload; here is what follows from it.
package packet

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"clusterctl/provision/host"
)

// Cluster is what the API says of those that packets are between.
type Cluster struct {
	Pods       []corev1.Pod
	Nodes      []corev1.Node
	Namespaces []corev1.Namespace
	Services   []corev1.Service
	Slices     []discoveryv1.EndpointSlice
	Policies   []networkingv1.NetworkPolicy
}

// Route is where a packet comes from and where it may come out.
type Route struct {
	From, To string         // as they were asked for
	Protocol string         // host.TCP or host.UDP
	Sender   string         // the node that sends it; "" when it comes from this computer
	Pod      *corev1.Pod    // that sends it; nil when its machine does, or this computer
	Source   netip.Addr     // of the pod, unless it has its machine's network
	Target   netip.AddrPort // what it is sent to
	Service  *corev1.Service
	Ends     []End // of a service: its endpoints; none when the target is outside of the cluster
}

// End is where a packet may come out.
type End struct {
	At   netip.AddrPort
	Node string
	Pod  *corev1.Pod // nil when it is a machine, or no pod that the API has
}

// Ports are those that the packet may be sent to on its way.
func (r *Route) Ports() []uint16 {
	seen := map[uint16]bool{r.Target.Port(): true}
	list := []uint16{r.Target.Port()}
	for _, e := range r.Ends {
		if !seen[e.At.Port()] {
			seen[e.At.Port()] = true
			list = append(list, e.At.Port())
		}
	}
	return list
}

// MostNodes is how many machines watch for one packet.
const MostNodes = 16

// Nodes are those whose machines watch: that of the sender first. A service on more machines than MostNodes is watched
// for on some.
func (r *Route) Nodes() (list []string) {
	seen := map[string]bool{"": true}
	add := func(name string) {
		if !seen[name] && len(list) < MostNodes {
			seen[name] = true
			list = append(list, name)
		}
	}
	add(r.Sender)
	for _, e := range r.Ends {
		add(e.Node)
	}
	return list
}

// Addresses are those whose way machines look up: where the packet may come out, and where it comes from.
func (r *Route) Addresses() (list []netip.Addr) {
	for _, e := range r.Ends {
		list = append(list, e.At.Addr())
	}
	if len(r.Ends) == 0 {
		list = append(list, r.Target.Addr())
	}
	if r.Source.IsValid() {
		list = append(list, r.Source)
	}
	return list
}

// Seen is what a node's machine tells.
type Seen struct {
	Node string
	host.Traced
	Error string // why it tells nothing
}
