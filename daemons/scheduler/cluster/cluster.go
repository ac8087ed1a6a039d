// Package cluster is the scheduler's model of the cluster. It holds the nodes with their used resources, and tables of
// how many selected pods are in each topology domain. Scheduling a pod then looks up numbers instead of counting.
// Events update the tables. Nominated pods and preemption victims are added or removed temporarily in the same tables.
//
// Package plugin decides which nodes fit. Package scheduler decides when to schedule. A Cluster has no lock: its owner
// must serialize access.
package cluster

import (
	"iter"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Cluster holds the nodes, the pods on them, the nominated pods, and the tables.
type Cluster struct {
	Storage *Storage
	Devices *Devices

	nodes         []*Node // by index; nil for a removed node
	freeIndexes   []int   // indexes of removed nodes
	byName        map[string]*Node
	order         []*Node // in search order, alternating between zones; nil if it must be rebuilt
	images        map[string]int
	preferTainted int // nodes with a PreferNoSchedule taint
	pods          map[types.UID]*Pod
	strays        map[string]map[types.UID]*Pod // by node name: pods on nodes that are not known (yet)
	nominated     map[types.UID]*Node
	claims        map[string]int // by namespace/name: number of pods on nodes that use a claim

	podGroups             map[string]*podGroup
	groupsByLabel         map[label]map[*podGroup]bool // groups by each of their labels
	selectors             map[string]*activeSelector
	selectorsByLabel      map[label]map[*activeSelector]bool // selectors by their pin label
	selectorsWithoutLabel map[*activeSelector]bool
	topologies            map[string]*topology
	classes               map[string]*nodeClass
	tables                map[string]*Table
	fitCaches             map[fitCacheKey]*FitCache
	useCounter            uint64
	epoch                 uint64
	namespaces            map[string]map[string]string
	owners                owners
}

// New returns an empty cluster.
func New() *Cluster {
	return &Cluster{
		Storage: newStorage(), Devices: newDevices(), byName: map[string]*Node{}, images: map[string]int{},
		pods:   map[types.UID]*Pod{},
		strays: map[string]map[types.UID]*Pod{}, nominated: map[types.UID]*Node{}, claims: map[string]int{},
		podGroups: map[string]*podGroup{}, groupsByLabel: map[label]map[*podGroup]bool{},
		selectors:        map[string]*activeSelector{},
		selectorsByLabel: map[label]map[*activeSelector]bool{}, selectorsWithoutLabel: map[*activeSelector]bool{},
		topologies: map[string]*topology{},
		classes:    map[string]*nodeClass{}, tables: map[string]*Table{}, namespaces: map[string]map[string]string{},
		owners:    newOwners(),
		fitCaches: map[fitCacheKey]*FitCache{},
	}
}

// Len returns the number of nodes.
func (c *Cluster) Len() int { return len(c.byName) }

// Node returns a node by name, or nil.
func (c *Cluster) Node(name string) *Node { return c.byName[name] }

// Pod returns a pod that is on a node or assumed to be, or nil.
func (c *Cluster) Pod(uid types.UID) *Pod { return c.pods[uid] }

// Pods returns the pods on nodes, including assumed ones.
func (c *Cluster) Pods() iter.Seq[*Pod] { return maps.Values(c.pods) }

// Nodes returns all nodes in search order. Zones alternate, so that the first part of the list covers all of them.
func (c *Cluster) Nodes() []*Node {
	if c.order == nil && len(c.byName) > 0 {
		c.order = interleave(c.nodes)
	}
	return c.order
}

func interleave(nodes []*Node) []*Node {
	var zones []string
	by := map[string][]*Node{}
	total := 0
	for _, n := range nodes {
		if n == nil {
			continue
		}
		zone := n.Labels[corev1.LabelTopologyRegion] + "/" + n.Labels[corev1.LabelTopologyZone]
		if by[zone] == nil {
			zones = append(zones, zone)
		}
		by[zone] = append(by[zone], n)
		total++
	}
	order := make([]*Node, 0, total)
	for i := 0; len(order) < total; i++ {
		for _, zone := range zones {
			if i < len(by[zone]) {
				order = append(order, by[zone][i])
			}
		}
	}
	return order
}

// SetNode adds or updates a node. changed reports whether pods may fit that did not before. before is the previous
// object if the node's pods may now be in other domains or count for other constraints.
func (c *Cluster) SetNode(node *NodeObject) (changed bool, before *NodeObject) {
	n := c.byName[node.Name]
	if n == nil {
		c.epoch++
		n = &Node{NodeObject: node, Epoch: c.epoch}
		c.indexNode(n)
		c.countObject(n, 1)
		for _, p := range c.strays[n.Name] {
			c.Add(p, n)
		}
		delete(c.strays, n.Name)
		return true, nil
	}
	old := n.NodeObject
	moved := !maps.Equal(old.Labels, node.Labels) || !sameTaints(old.Taints, node.Taints)
	c.countObject(n, -1)
	if moved { // its pods change domains, or count for other constraints
		pods := append([]*Pod(nil), n.Pods...)
		for _, p := range pods {
			c.count(p, n, -1)
		}
		c.removeFromTables(n)
		n.NodeObject = node
		c.addToTables(n)
		for _, p := range pods {
			c.count(p, n, 1)
		}
		c.order = nil
	}
	n.NodeObject = node
	c.countObject(n, 1)
	c.epoch++
	n.Epoch = c.epoch
	if moved {
		return true, old
	}
	return old.Unschedulable != node.Unschedulable || !old.Allocatable.equal(&node.Allocatable) ||
		!slices.Equal(old.Features, node.Features), nil
}

// indexNode assigns a node an index and adds it to the tables.
func (c *Cluster) indexNode(n *Node) {
	if last := len(c.freeIndexes) - 1; last >= 0 {
		n.Index, c.freeIndexes = c.freeIndexes[last], c.freeIndexes[:last]
		c.nodes[n.Index] = n
	} else {
		n.Index = len(c.nodes)
		c.nodes = append(c.nodes, n)
	}
	c.byName[n.Name] = n
	c.order = nil
	c.addToTables(n)
}

// DeleteNode removes a node. Its pods are retained until the node returns or they are deleted.
func (c *Cluster) DeleteNode(name string) {
	n := c.byName[name]
	if n == nil {
		return
	}
	for len(n.Pods) > 0 {
		p := n.Pods[len(n.Pods)-1]
		c.Remove(p)
		c.addStray(p, name)
	}
	for len(n.Nominated) > 0 {
		c.Nominate(n.Nominated[0], "")
	}
	c.countObject(n, -1)
	c.removeFromTables(n)
	delete(c.byName, name)
	c.nodes[n.Index] = nil
	c.freeIndexes = append(c.freeIndexes, n.Index)
	c.order = nil
}

func (c *Cluster) countObject(n *Node, times int) {
	if slices.ContainsFunc(n.Taints,
		func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectPreferNoSchedule }) {
		c.preferTainted += times
	}
	for name := range n.Images {
		if c.images[name] += times; c.images[name] <= 0 {
			delete(c.images, name)
		}
	}
}

// HasPreferNoSchedule reports whether any node has a PreferNoSchedule taint.
func (c *Cluster) HasPreferNoSchedule() bool { return c.preferTainted > 0 }

// NodesWithImage returns the number of nodes that have an image.
func (c *Cluster) NodesWithImage(name string) int { return c.images[name] }

// SetPod counts a pod on the node that the API shows, instead of the assumed one.
func (c *Cluster) SetPod(p *Pod, node string) {
	c.DeletePod(p.UID)
	c.pods[p.UID] = p
	if n := c.byName[node]; n != nil {
		c.Add(p, n)
	} else {
		c.addStray(p, node)
	}
}

// Assume counts a pod on a node before the API shows it there.
func (c *Cluster) Assume(p *Pod, n *Node) {
	if c.pods[p.UID] != nil {
		return
	}
	c.Nominate(p, "")
	assumed := *p
	assumed.Assumed = true
	c.pods[p.UID] = &assumed
	c.Add(&assumed, n)
}

// RevertAssume removes an assumed pod that could not be bound.
func (c *Cluster) RevertAssume(uid types.UID) {
	if p := c.pods[uid]; p != nil && p.Assumed {
		c.DeletePod(uid)
	}
}

// DeletePod removes a pod and its nomination.
func (c *Cluster) DeletePod(uid types.UID) {
	if n := c.nominated[uid]; n != nil {
		for _, p := range n.Nominated {
			if p.UID == uid {
				c.Nominate(p, "")
				break
			}
		}
	}
	p := c.pods[uid]
	if p == nil {
		return
	}
	delete(c.pods, uid)
	if p.node != nil {
		c.Remove(p)
		return
	}
	for name, pods := range c.strays {
		if pods[uid] == nil {
			continue
		}
		if delete(pods, uid); len(pods) == 0 {
			delete(c.strays, name)
		}
		return
	}
}

func (c *Cluster) addStray(p *Pod, node string) {
	if c.strays[node] == nil {
		c.strays[node] = map[types.UID]*Pod{}
	}
	c.strays[node][p.UID] = p
}

// Nominate records a pod's nominated node. An empty or unknown node removes the nomination. A pod that is on a node
// gets no nomination.
func (c *Cluster) Nominate(p *Pod, node string) {
	if old := c.nominated[p.UID]; old != nil {
		delete(c.nominated, p.UID)
		for i, o := range old.Nominated {
			if o.UID == p.UID {
				old.Nominated = append(old.Nominated[:i:i], old.Nominated[i+1:]...)
				c.releaseTerms(o)
				c.releasePodGroup(o.nominatedGroup)
				break
			}
		}
	}
	n := c.byName[node]
	if n == nil || c.pods[p.UID] != nil {
		return
	}
	promised := *p
	promised.node, promised.group, promised.nominatedGroup = nil, nil, c.acquirePodGroup(p.Shape)
	c.acquireTerms(&promised)
	c.nominated[p.UID] = n
	n.Nominated = append(n.Nominated[:len(n.Nominated):len(n.Nominated)], &promised)
}

// Add adds a pod to a node, permanently or temporarily.
func (c *Cluster) Add(p *Pod, n *Node) {
	p.node, p.slot = n, len(n.Pods)
	n.Pods = append(n.Pods, p)
	n.countPod(p, 1)
	for _, claim := range p.Claims {
		c.claims[claim]++
	}
	p.group = c.acquirePodGroup(p.Shape)
	p.group.add(p)
	c.acquireTerms(p)
	c.count(p, n, 1)
}

// Remove removes a pod from its node.
func (c *Cluster) Remove(p *Pod) {
	n := p.node
	last := len(n.Pods) - 1
	moved := n.Pods[last]
	n.Pods[p.slot], moved.slot = moved, p.slot
	n.Pods[last] = nil
	n.Pods = n.Pods[:last]
	n.countPod(p, -1)
	for _, claim := range p.Claims {
		if c.claims[claim]--; c.claims[claim] <= 0 {
			delete(c.claims, claim)
		}
	}
	c.count(p, n, -1)
	p.group.remove(p)
	c.releaseTerms(p)
	c.releasePodGroup(p.group)
	p.node, p.group = nil, nil
}

// RetainTables retains the tables of the pods' terms while the pods are temporarily removed, until ReleaseTables.
// Callers that have tables can then continue to read them.
func (c *Cluster) RetainTables(pods []*Pod) {
	for _, p := range pods {
		c.acquireTerms(p)
	}
}

// ReleaseTables reverts RetainTables.
func (c *Cluster) ReleaseTables(pods []*Pod) {
	for _, p := range pods {
		c.releaseTerms(p)
	}
}

// ClaimUsers returns the number of pods on nodes that use a claim.
func (c *Cluster) ClaimUsers(key string) int { return c.claims[key] }

// OnNode returns the pod's node, or nil if it has none or the node is not known.
func (p *Pod) OnNode() *Node { return p.node }

const notStarted = math.MaxInt64

// IsNominated reports whether a pod has a nominated node.
func (c *Cluster) IsNominated(uid types.UID) bool { return c.nominated[uid] != nil }

// NominatedNode returns a pod's nominated node. It returns nil if the pod has none, or if that node is not known.
func (c *Cluster) NominatedNode(uid types.UID) *Node { return c.nominated[uid] }

// Replace replaces a pod by its new state if nothing that the tables depend on has changed. It reports whether it did.
func (c *Cluster) Replace(old, p *Pod) bool {
	if old.Shape != p.Shape || old.Assumed || old.node == nil || old.node.Name != p.NodeName ||
		!old.used.equal(p.used) ||
		!old.usedWithDefaults.equal(p.usedWithDefaults) ||
		(old.DeletionTimestamp == nil) != (p.DeletionTimestamp == nil) {
		return false
	}
	p.node, p.group, p.slot, p.groupSlot = old.node, old.group, old.slot, old.groupSlot
	p.used, p.usedWithDefaults = old.used, old.usedWithDefaults
	p.node.Pods[p.slot], p.group.pods[p.groupSlot] = p, p
	c.pods[p.UID] = p
	return true
}
