package cluster

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api"
)

// NodeObject is of a Node object what the scheduler reads, and nothing else: thousands of them are kept.
type NodeObject struct {
	metav1.ObjectMeta
	Taints        []corev1.Taint
	Unschedulable bool
	Allocatable   Resources
	Images        map[string]int64 // size by name
	Features      []string         // that its kubelet declares

	match *corev1.Node // for selectors, which read names and labels
}

// NewNode reads a Node object.
func NewNode(node *corev1.Node) *NodeObject {
	n := &NodeObject{
		ObjectMeta: metav1.ObjectMeta{
			Name:            node.Name,
			UID:             node.UID,
			ResourceVersion: node.ResourceVersion,
			Labels:          node.Labels,
		},
		Taints:        node.Spec.Taints,
		Unschedulable: node.Spec.Unschedulable,
		Allocatable:   resourcesOf(node.Status.Allocatable),
		Features:      node.Status.DeclaredFeatures,
	}
	if len(node.Status.Images) > 0 {
		n.Images = make(map[string]int64, len(node.Status.Images))
		for _, image := range node.Status.Images {
			for _, name := range image.Names {
				n.Images[name] = image.SizeBytes
			}
		}
	}
	n.match = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels}}
	return n
}

// Moved reports whether a node is in another domain of a topology than before.
func (n *NodeObject) Moved(before *NodeObject, key string) bool {
	was, had := before.Labels[key]
	is, has := n.Labels[key]
	return was != is || had != has
}

// Retainted reports whether a node has other taints than before.
func (n *NodeObject) Retainted(before *NodeObject) bool { return !sameTaints(before.Taints, n.Taints) }

// Relabelled reports whether a node has other labels than before.
func (n *NodeObject) Relabelled(before *NodeObject) bool { return !maps.Equal(before.Labels, n.Labels) }

// Change is what has changed of a node, by upstream's names of it; before is nil for one that was not there. Of several
// changes it is the first that upstream looks for.
func (n *NodeObject) Change(before *NodeObject) string {
	switch {
	case before == nil:
		return "Add"
	case before.Unschedulable && !n.Unschedulable:
		return "UpdateNodeTaint"
	case !before.Allocatable.equal(&n.Allocatable):
		return "UpdateNodeAllocatable"
	case n.Relabelled(before):
		return "UpdateNodeLabel"
	case n.Retainted(before):
		return "UpdateNodeTaint"
	}
	return "Update"
}

// Node is a node with what is taken of it. What is read of hundreds for every pod comes first, in one line of the
// processor's cache.
type Node struct {
	*NodeObject
	Index     int
	Epoch     uint64 // changes with the object, and is no other node's
	changes   uint32 // of what is taken
	Nominated []*Pod // promised to them, not counted
	Pods      []*Pod
	Requested Resources
	Usual     Resources // the same with a usual amount for containers that ask for nothing
	ports     map[api.HostPort]int
}

// Match is the node as selectors of nodes read it.
func (n *Node) Match() *corev1.Node { return n.match }

func (n *Node) take(p *Pod, times int64) {
	n.changes++
	n.Requested.add(p.used, times)
	n.Usual.add(p.usedUsual, times)
	for _, port := range p.HostPorts {
		if n.ports == nil {
			n.ports = map[api.HostPort]int{}
		}
		if n.ports[port] += int(times); n.ports[port] <= 0 {
			delete(n.ports, port)
		}
	}
}

// PortTaken reports whether a port of the machine is taken.
func (n *Node) PortTaken(want api.HostPort) bool {
	for have := range n.ports {
		if want.Conflicts(have) {
			return true
		}
	}
	return false
}

func sameTaints(a, b []corev1.Taint) bool {
	return slices.EqualFunc(
		a,
		b,
		func(x, y corev1.Taint) bool { return x.Key == y.Key && x.Value == y.Value && x.Effect == y.Effect },
	)
}
