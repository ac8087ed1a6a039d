package cluster

import (
	"cmp"
	"slices"
)

// topology numbers the domains of one key. The empty key's domains are the nodes themselves.
type topology struct {
	key  string
	ids  map[string]int32
	of   []int32 // by node's index; noDomain where the node lacks the key
	used int
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
	for len(t.of) <= n.Index {
		t.of = append(t.of, noDomain)
	}
	if t.key == "" {
		t.of[n.Index] = int32(n.Index)
		return
	}
	value, ok := n.Labels[t.key]
	if !ok {
		t.of[n.Index] = noDomain
		return
	}
	id, ok := t.ids[value]
	if !ok {
		id = int32(len(t.ids))
		t.ids[value] = id
	}
	t.of[n.Index] = id
}

// nodeClass is a set of nodes: those that count for a constraint.
type nodeClass struct {
	id   string
	in   func(*Node) bool
	has  []bool // by node's index
	used int
}

func (k *nodeClass) set(n *Node) {
	for len(k.has) <= n.Index {
		k.has = append(k.has, false)
	}
	k.has[n.Index] = k.in(n)
}

// Table counts chosen pods by domain.
type Table struct {
	id     string
	choice *choice
	topo   *topology
	class  *nodeClass // whose pods count; nil: all nodes'
	alive  bool       // pods that are being deleted do not count
	counts []int32    // by domain
	total  int
	used   uint64

	nodes   []int32 // counting nodes by domain
	domains int     // with such nodes
	levels  []int32 // how many of the domains have a number of pods
	least   int
}

// Spread says which pods of a table count, as constraints do: those that are not being deleted, on nodes that count.
type Spread struct {
	Keys  []string // that nodes must have
	Shape *Shape   // whose demands on nodes and tolerations count, if:
	Nodes bool
	Taint bool
	// Tolerates reports whether a shape puts up with a node's taints.
	Tolerates func(*Shape, *Node) bool
}

// Table returns the counts of an About's pods by a key's domains; with a Spread of those alone that it counts. It is
// made when it is first asked for and kept up until others are asked for more. Nobody keeps it longer than for one pod.
func (c *Cluster) Table(a *About, key string, spread *Spread) *Table {
	id := key + "\x02" + a.id
	if spread != nil {
		id += "\x02" + spread.id()
	}
	c.recent++
	if t := c.tables[id]; t != nil {
		t.used = c.recent
		return t
	}
	c.makeRoom()
	t := &Table{id: id, choice: c.choice(a), topo: c.topology(key), alive: spread != nil, used: c.recent}
	if spread != nil {
		t.class = c.class(spread)
	}
	t.choice.tables = append(t.choice.tables, t)
	c.tables[id] = t
	for _, n := range c.nodes {
		if n != nil {
			t.enter(n)
		}
	}
	for k := range t.choice.kinds {
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
	if s.Nodes {
		id += "n" + s.Shape.nodesKey
	}
	if s.Taint {
		id += "\x03t" + s.Shape.tolerate
	}
	return id
}

func (c *Cluster) class(s *Spread) *nodeClass {
	id := s.id()
	k := c.classes[id]
	if k == nil {
		byNode, shape := s.Nodes && s.Shape.Selective, s.Shape
		spread := *s
		k = &nodeClass{id: id, in: func(n *Node) bool {
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
			return !spread.Taint || spread.Tolerates(shape, n)
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

// What tables may hold together, in domains. Those that nobody asked for lately go first.
const mostCounts = 4 << 20

func (c *Cluster) makeRoom() {
	sum := 0
	for _, t := range c.tables {
		sum += len(t.counts) + len(t.nodes) + 64
	}
	if sum < mostCounts {
		return
	}
	all := make([]*Table, 0, len(c.tables))
	for _, t := range c.tables {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *Table) int { return cmp.Compare(a.used, b.used) })
	for _, t := range all[:(len(all)+1)/2] {
		c.dropTable(t)
	}
}

func (c *Cluster) dropTable(t *Table) {
	delete(c.tables, t.id)
	t.choice.tables = slices.DeleteFunc(t.choice.tables, func(o *Table) bool { return o == t })
	c.dropUnused(t.choice)
	c.releaseTopology(t.topo)
	if t.class != nil {
		if t.class.used--; t.class.used == 0 {
			delete(c.classes, t.class.id)
		}
	}
}

// enter makes a node's domain one of the table's.
func (t *Table) enter(n *Node) {
	d := t.topo.of[n.Index]
	if d == noDomain {
		return
	}
	t.reach(d)
	if t.class == nil || !t.class.has[n.Index] {
		return
	}
	if t.nodes[d]++; t.nodes[d] == 1 {
		t.domains++
		t.level(t.counts[d], 1)
	}
}

func (t *Table) leave(n *Node) {
	d := t.topo.of[n.Index]
	if d == noDomain || t.class == nil || !t.class.has[n.Index] {
		return
	}
	if t.nodes[d]--; t.nodes[d] == 0 {
		t.domains--
		t.level(t.counts[d], -1)
	}
}

func (t *Table) reach(d int32) {
	for len(t.counts) <= int(d) {
		t.counts = append(t.counts, 0)
		if t.class != nil {
			t.nodes = append(t.nodes, 0)
		}
	}
}

func (t *Table) level(count, times int32) {
	for len(t.levels) <= int(count) {
		t.levels = append(t.levels, 0)
	}
	t.levels[count] += times
	if times > 0 {
		t.least = min(t.least, int(count))
	}
}

func (t *Table) add(p *Pod, n *Node, times int32) {
	if t.alive && p.DeletionTimestamp != nil {
		return
	}
	d := t.topo.of[n.Index]
	if d == noDomain || t.class != nil && !t.class.has[n.Index] {
		return
	}
	if t.class != nil {
		t.level(t.counts[d], -1)
		t.level(t.counts[d]+times, 1)
	}
	t.counts[d] += times
	t.total += int(times)
}

// Domain is the domain of a node; ok reports whether it is in one.
func (t *Table) Domain(n *Node) (domain int, ok bool) {
	d := t.topo.of[n.Index]
	return int(d), d != noDomain
}

// Count is how many of the pods are in a node's domain.
func (t *Table) Count(n *Node) int {
	d := t.topo.of[n.Index]
	if d == noDomain {
		return 0
	}
	return int(t.counts[d])
}

// Total is how many there are in all domains.
func (t *Table) Total() int { return t.total }

// Domains is how many domains have nodes that count.
func (t *Table) Domains() int { return t.domains }

// Least is the smallest number of pods in a domain that has nodes which count; a large number if there is none.
func (t *Table) Least() int {
	for t.least < len(t.levels) && t.levels[t.least] == 0 {
		t.least++
	}
	if t.least == len(t.levels) {
		t.least = len(t.levels)
		if t.domains == 0 {
			return 1 << 30
		}
	}
	return t.least
}

// count adds a pod to the tables that are about it, and its own terms to what others look at.
func (c *Cluster) count(p *Pod, n *Node, times int32) {
	for _, ch := range p.kind.choices {
		for _, t := range ch.tables {
			t.add(p, n, times)
		}
	}
	for i := range p.carries {
		c.carried(&p.carries[i]).add(n, &p.carries[i].weights, times)
	}
}

// enterTables gives a node its domains.
func (c *Cluster) enterTables(n *Node) {
	for _, t := range c.topologies {
		t.set(n)
	}
	for _, k := range c.classes {
		k.set(n)
	}
	for _, t := range c.tables {
		t.enter(n)
	}
}

func (c *Cluster) leaveTables(n *Node) {
	for _, t := range c.tables {
		t.leave(n)
	}
}
