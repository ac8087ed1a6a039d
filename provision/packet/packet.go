// Package packet determines what happens to a packet between two ends of a cluster: where it should arrive, how far it
// came according to the machines, and what stopped it. Package run asks the machines, and package workload asks the
// API. This package evaluates the results.
package packet

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"clusterctl/provision/host"
)

// Cluster holds the API objects that affect packets.
type Cluster struct {
	Pods       []corev1.Pod
	Nodes      []corev1.Node
	Namespaces []corev1.Namespace
	Services   []corev1.Service
	Slices     []discoveryv1.EndpointSlice
	Policies   []networkingv1.NetworkPolicy
}

// Route describes where a packet comes from and where it may arrive.
type Route struct {
	From, To string         // as the user gave them
	Protocol string         // host.TCP or host.UDP
	Sender   string         // the sending node; "" if this computer sends
	Pod      *corev1.Pod    // the sending pod; nil if a machine or this computer sends
	Source   netip.Addr     // address of the pod, unless it uses the host network
	Target   netip.AddrPort // the destination of the packet
	Service  *corev1.Service
	Ends     []End // the endpoints, if it is a service; empty if the target is outside the cluster
}

// End is a place where a packet may arrive.
type End struct {
	At   netip.AddrPort
	Node string
	Pod  *corev1.Pod // nil if it is a machine, or a pod that the API does not list
}

// Ports returns the destination ports that the packet may have on its way.
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

// MaxNodes is the maximum number of machines that watch for one packet.
const MaxNodes = 16

// Nodes returns the nodes whose machines watch, the sender's first. If a service has endpoints on more machines than
// MaxNodes, only some of them watch.
func (r *Route) Nodes() (list []string) {
	seen := map[string]bool{"": true}
	add := func(name string) {
		if !seen[name] && len(list) < MaxNodes {
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

// Addresses returns the addresses whose routes the machines look up: where the packet may arrive, and where it comes
// from.
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

// NodeReport is the report of a node's machine.
type NodeReport struct {
	Node string
	host.Traced
	Error string // why there is no report
}
