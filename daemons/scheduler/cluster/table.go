package cluster

import (
	"cmp"
	"slices"
)

// topology numbers the domains of one topology key. For the empty key, each node is a domain.
type topology struct {
	key      string
	ids      map[string]int32
	domainOf []int32 // by the node's index; noDomain if the node lacks the key
	used     int
}

const noDomain = -1

func (c *Cluster) topology(key string) *topology {
	t := c.topologies[key]
	if t == nil {
		t = &topology{key: key, ids: map[string]int32{}}
		for _, n := range c.nodes {
			if n != nil {
				t.set(n)
			}
		}
		c.topologies[key] = t
	}
	t.used++
	return t
}

func (c *Cluster) releaseTopology(t *topology) {
	if t.used--; t.used == 0 {
		delete(c.topologies, t.key)
	}
}

func (t *topology) set(n *Node) {
	for len(t.domainOf) <= n.Index {
		t.domainOf = append(t.domainOf, noDomain)
	}
	if t.key == "" {
		t.domainOf[n.Index] = int32(n.Index)
		return
	}
	value, ok := n.Labels[t.key]
	if !ok {
		t.domainOf[n.Index] = noDomain
		return
	}
	id, ok := t.ids[value]
	if !ok {
		id = int32(len(t.ids))
		t.ids[value] = id
	}
	t.domainOf[n.Index] = id
}

// nodeClass is the set of nodes that count for a constraint.
type nodeClass struct {
	id       string
	contains func(*Node) bool
	members  []bool // by the node's index
	used     int
}

func (k *nodeClass) set(n *Node) {
	for len(k.members) <= n.Index {
		k.members = append(k.members, false)
	}
	k.members[n.Index] = k.contains(n)
}

// Table counts selected pods by domain.
type Table struct {
	id              string
	selector        *activeSelector
	topo            *topology
	class           *nodeClass // nodes whose pods count; nil means all nodes
	excludeDeleting bool       // pods that are being deleted do not count
	counts          []int32    // by domain
	total           int
	used            uint64

	nodes   []int32 // by domain: number of nodes that count
	domains int     // number of domains with such nodes
	levels  []int32 // by number of pods: how many domains have it
	minimum int
}

// Spread restricts a table as a topology spread constraint does: only pods that are not being deleted, on nodes that
// count.
type Spread struct {
	Keys []string // labels that nodes must have
	// its node affinity counts if HonorsAffinity is set, its tolerations count if HonorsTaints is set
	Shape          *Shape
	HonorsAffinity bool
	HonorsTaints   bool
	// Tolerates reports whether a shape tolerates a node's taints.
	Tolerates func(*Shape, *Node) bool
}

// Table returns the number of pods that a PodSelector selects in each domain of a key. With a spread, only the pods
// that it admits count. A table is created on first use and maintained until its memory is needed for others. Callers
// must not retain it for longer than one pod.
func (c *Cluster) Table(a *PodSelector, key string, spread *Spread) *Table {
	id := key + "\x02" + a.id
	if spread != nil {
		id += "\x02" + spread.id()
	}
	c.useCounter++
	if t := c.tables[id]; t != nil {
		t.used = c.useCounter
		return t
	}
	c.evictTables()
	t := &Table{id: id, selector: c.activeSelectorOf(a), topo: c.topology(key), excludeDeleting: spread != nil,
		used: c.useCounter}
	if spread != nil {
		t.class = c.class(spread)
	}
	t.selector.tables = append(t.selector.tables, t)
	c.tables[id] = t
	for _, n := range c.nodes {
		if n != nil {
			t.addNode(n)
		}
	}
	for k := range t.selector.groups {
		for _, p := range k.pods {
			t.add(p, p.node, 1)
		}
	}
	return t
}

func (s *Spread) id() string {
	id := ""
	for _, k := range s.Keys {
		id += k + "\x03"
	}
	if s.Shape == nil {
		return id
	}
	if s.HonorsAffinity {
		id += "n" + s.Shape.nodesKey
	}
	if s.HonorsTaints {
		id += "\x03t" + s.Shape.tolerationsKey
	}
	return id
}

func (c *Cluster) class(s *Spread) *nodeClass {
	id := s.id()
	k := c.classes[id]
	if k == nil {
		byNode, shape := s.HonorsAffinity && s.Shape.HasRequired, s.Shape
		spread := *s
		k = &nodeClass{id: id, contains: func(n *Node) bool {
			for _, key := range spread.Keys {
				if _, ok := n.Labels[key]; !ok {
					return false
				}
			}
			if byNode {
				if ok, err := shape.Required.Match(n.match); !ok || err != nil {
					return false
				}
			}
			return !spread.HonorsTaints || spread.Tolerates(shape, n)
		}}
		for _, n := range c.nodes {
			if n != nil {
				k.set(n)
			}
		}
		c.classes[id] = k
	}
	k.used++
	return k
}

// maxTableEntries is the maximum size of all tables together, in entries. The least recently used tables are removed
// first.
const maxTableEntries = 4 << 20

func (c *Cluster) evictTables() {
	sum := 0
	for _, t := range c.tables {
		sum += len(t.counts) + len(t.nodes) + 64
	}
	if sum < maxTableEntries {
		return
	}
	all := make([]*Table, 0, len(c.tables))
	for _, t := range c.tables {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *Table) int { return cmp.Compare(a.used, b.used) })
	for _, t := range all[:(len(all)+1)/2] {
		c.removeTable(t)
	}
}

func (c *Cluster) removeTable(t *Table) {
	delete(c.tables, t.id)
	t.selector.tables = slices.DeleteFunc(t.selector.tables, func(o *Table) bool { return o == t })
	c.removeUnused(t.selector)
	c.releaseTopology(t.topo)
	if t.class != nil {
		if t.class.used--; t.class.used == 0 {
			delete(c.classes, t.class.id)
		}
	}
}

// addNode adds a node's domain to the table.
func (t *Table) addNode(n *Node) {
	d := t.topo.domainOf[n.Index]
	if d == noDomain {
		return
	}
	t.growTo(d)
	if t.class == nil || !t.class.members[n.Index] {
		return
	}
	if t.nodes[d]++; t.nodes[d] == 1 {
		t.domains++
		t.countLevel(t.counts[d], 1)
	}
}

func (t *Table) removeNode(n *Node) {
	d := t.topo.domainOf[n.Index]
	if d == noDomain || t.class == nil || !t.class.members[n.Index] {
		return
	}
	if t.nodes[d]--; t.nodes[d] == 0 {
		t.domains--
		t.countLevel(t.counts[d], -1)
	}
}

func (t *Table) growTo(d int32) {
	for len(t.counts) <= int(d) {
		t.counts = append(t.counts, 0)
		if t.class != nil {
			t.nodes = append(t.nodes, 0)
		}
	}
}

func (t *Table) countLevel(count, times int32) {
	for len(t.levels) <= int(count) {
		t.levels = append(t.levels, 0)
	}
	t.levels[count] += times
	if times > 0 {
		t.minimum = min(t.minimum, int(count))
	}
}

func (t *Table) add(p *Pod, n *Node, times int32) {
	if t.excludeDeleting && p.DeletionTimestamp != nil {
		return
	}
	d := t.topo.domainOf[n.Index]
	if d == noDomain || t.class != nil && !t.class.members[n.Index] {
		return
	}
	if t.class != nil {
		t.countLevel(t.counts[d], -1)
		t.countLevel(t.counts[d]+times, 1)
	}
	t.counts[d] += times
	t.total += int(times)
}

// Domain returns the domain of a node. ok reports whether it has one.
func (t *Table) Domain(n *Node) (domain int, ok bool) {
	d := t.topo.domainOf[n.Index]
	return int(d), d != noDomain
}

// Count returns the number of selected pods in a node's domain.
func (t *Table) Count(n *Node) int {
	d := t.topo.domainOf[n.Index]
	if d == noDomain {
		return 0
	}
	return int(t.counts[d])
}

// Total returns the number of selected pods in all domains.
func (t *Table) Total() int { return t.total }

// Domains returns the number of domains with nodes that count.
func (t *Table) Domains() int { return t.domains }

// Minimum returns the minimum number of pods in a domain with nodes that count. It returns 1<<30 if there is no such
// domain.
func (t *Table) Minimum() int {
	for t.minimum < len(t.levels) && t.levels[t.minimum] == 0 {
		t.minimum++
	}
	if t.minimum == len(t.levels) {
		t.minimum = len(t.levels)
		if t.domains == 0 {
			return 1 << 30
		}
	}
	return t.minimum
}

// count adds a pod, times times, to the tables that select it, and its own terms to the carried terms.
func (c *Cluster) count(p *Pod, n *Node, times int32) {
	for _, ch := range p.group.selectors {
		for _, t := range ch.tables {
			t.add(p, n, times)
		}
	}
	for i := range p.weightedTerms {
		c.termDomainsOf(&p.weightedTerms[i]).add(n, &p.weightedTerms[i].weights, times)
	}
}

// addToTables adds a node to the topologies, classes and tables.
func (c *Cluster) addToTables(n *Node) {
	for _, t := range c.topologies {
		t.set(n)
	}
	for _, k := range c.classes {
		k.set(n)
	}
	for _, t := range c.tables {
		t.addNode(n)
	}
}

func (c *Cluster) removeFromTables(n *Node) {
	for _, t := range c.tables {
		t.removeNode(n)
	}
}
