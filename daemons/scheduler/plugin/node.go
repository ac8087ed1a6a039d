package plugin

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Node is a node with the pods that are on it, or will be. It is never changed: With
// and Without return another.
type Node struct {
	*corev1.Node
	Pods        []*Pod
	Requested   Resources
	Usual       Resources
	Allocatable Resources
	ports       map[HostPort]int
	affine      int // pods that care about other pods' places
	images      map[string]int64
}

// NewNode returns a node without pods.
func NewNode(node *corev1.Node) *Node {
	n := &Node{Node: node, Allocatable: resourcesOf(node.Status.Allocatable)}
	if len(node.Status.Images) > 0 {
		n.images = make(map[string]int64, len(node.Status.Images))
		for _, image := range node.Status.Images {
			for _, name := range image.Names {
				n.images[name] = image.SizeBytes
			}
		}
	}
	return n
}

// Update returns the node as it is now, with the same pods.
func (n *Node) Update(node *corev1.Node) *Node {
	next := NewNode(node)
	next.Pods, next.Requested, next.Usual, next.ports, next.affine = n.Pods, n.Requested, n.Usual, n.ports, n.affine
	return next
}

// With returns the node with one more pod.
func (n *Node) With(pod *Pod) *Node {
	next := *n
	next.Pods = append(slices.Clip(n.Pods), pod)
	next.count(pod, 1)
	return &next
}

// Without returns the node with one pod fewer; the same when the pod is not on it.
func (n *Node) Without(pod *Pod) *Node {
	i := slices.IndexFunc(n.Pods, func(p *Pod) bool { return p.UID == pod.UID })
	if i < 0 {
		return n
	}
	next, gone := *n, n.Pods[i]
	next.Pods = append(slices.Clone(n.Pods[:i]), n.Pods[i+1:]...)
	next.count(gone, -1)
	return &next
}

func (n *Node) count(pod *Pod, times int64) {
	n.Requested = n.Requested.plus(pod.Requests, times)
	n.Usual = n.Usual.plus(pod.Usual, times)
	if pod.hasAffinity() {
		n.affine += int(times)
	}
	if len(pod.HostPort) == 0 {
		return
	}
	if n.ports = maps.Clone(n.ports); n.ports == nil {
		n.ports = map[HostPort]int{}
	}
	for _, p := range pod.HostPort {
		if n.ports[p] += int(times); n.ports[p] <= 0 {
			delete(n.ports, p)
		}
	}
}

// Snapshot is the cluster at one moment. Nobody changes it.
type Snapshot struct {
	Nodes []*Node
	// Start is where the search for a node begins, so that in a large cluster, of which
	// only a part is looked at, every part has its turn.
	Start int

	// Namespaces returns a namespace's labels; nil knows none.
	Namespaces func(name string) map[string]string
	// Volumes knows claims and volumes; nil knows none.
	Volumes Volumes
}

func (s *Snapshot) namespaceLabels(name string) map[string]string {
	if s.Namespaces == nil {
		return nil
	}
	return s.Namespaces(name)
}

// Replace returns a snapshot in which a node is as next says.
func (s *Snapshot) Replace(old, next *Node) *Snapshot {
	out := *s
	out.Nodes = slices.Clone(s.Nodes)
	for i := range out.Nodes {
		if out.Nodes[i] == old {
			out.Nodes[i] = next
		}
	}
	return &out
}
