package cluster

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api"
)

// NodeObject holds what the scheduler reads of a Node object, and nothing else, since there may be thousands.
type NodeObject struct {
	metav1.ObjectMeta
	Taints        []corev1.Taint
	Unschedulable bool
	Allocatable   Resources
	Images        map[string]int64 // size in bytes by name
	Features      []string         // features that its kubelet declares

	match *corev1.Node // for selectors, which read only the name and labels
}

// NewNode converts a Node object.
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

// HasMoved reports whether a node has changed its domain for a topology key.
func (n *NodeObject) HasMoved(before *NodeObject, key string) bool {
	old, existed := before.Labels[key]
	updated, ok := n.Labels[key]
	return old != updated || existed != ok
}

// HasNewTaints reports whether a node's taints have changed.
func (n *NodeObject) HasNewTaints(before *NodeObject) bool {
	return !sameTaints(before.Taints, n.Taints)
}

// HasNewLabels reports whether a node's labels have changed.
func (n *NodeObject) HasNewLabels(before *NodeObject) bool {
	return !maps.Equal(before.Labels, n.Labels)
}

// ChangeAction returns what has changed of a node, by upstream's names. before is nil for a new node. Of several
// changes it returns the first that upstream checks.
func (n *NodeObject) ChangeAction(before *NodeObject) string {
	switch {
	case before == nil:
		return "Add"
	case before.Unschedulable && !n.Unschedulable:
		return "UpdateNodeTaint"
	case !before.Allocatable.equal(&n.Allocatable):
		return "UpdateNodeAllocatable"
	case n.HasNewLabels(before):
		return "UpdateNodeLabel"
	case n.HasNewTaints(before):
		return "UpdateNodeTaint"
	}
	return "Update"
}

// Node is a node with its used resources. The fields that are read for hundreds of nodes per pod come first, in one
// cache line.
type Node struct {
	*NodeObject
	Index                 int
	Epoch                 uint64 // changes with the object, and is unique across nodes
	changes               uint32 // number of changes to the used resources
	Nominated             []*Pod // not counted in the resources
	Pods                  []*Pod
	Requested             Resources
	RequestedWithDefaults Resources // like Requested, with a default for containers without requests
	ports                 map[api.HostPort]int
}

// Match returns the node in the form that node selectors need.
func (n *Node) Match() *corev1.Node { return n.match }

func (n *Node) countPod(p *Pod, times int64) {
	n.changes++
	n.Requested.add(p.used, times)
	n.RequestedWithDefaults.add(p.usedWithDefaults, times)
	for _, port := range p.HostPorts {
		if n.ports == nil {
			n.ports = map[api.HostPort]int{}
		}
		if n.ports[port] += int(times); n.ports[port] <= 0 {
			delete(n.ports, port)
		}
	}
}

// IsPortInUse reports whether a host port is in use.
func (n *Node) IsPortInUse(want api.HostPort) bool {
	for current := range n.ports {
		if want.Conflicts(current) {
			return true
		}
	}
	return false
}

func sameTaints(a, b []corev1.Taint) bool {
	return slices.EqualFunc(a, b,
		func(x, y corev1.Taint) bool { return x.Key == y.Key && x.Value == y.Value && x.Effect == y.Effect })
}
