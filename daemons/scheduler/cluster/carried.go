package cluster

import "slices"

// carried records equal terms of pods on nodes: the domains of these pods, and the weight of the terms there.
type carried struct {
	choice *choice
	topo   *topology
	held   int
	at     map[int32]weights // by domain
}

// weights sums up terms: the number of required anti-affinity terms, the number of required affinity terms, and the sum
// of preferences.
type weights struct {
	anti, affinity int32
	preferred      int64
}

// carry is a term of a shape with its weights.
type carry struct {
	Term
	weights
}

func (c *Cluster) carried(t *carry) *carried {
	ch := c.choice(t.About)
	for _, k := range ch.carried {
		if k.topo.key == t.Key {
			return k
		}
	}
	k := &carried{choice: ch, topo: c.topology(t.Key), at: map[int32]weights{}}
	ch.carried = append(ch.carried, k)
	return k
}

func (c *Cluster) holdTerms(p *Pod) {
	for i := range p.carries {
		c.carried(&p.carries[i]).held++
	}
}

func (c *Cluster) releaseTerms(p *Pod) {
	for i := range p.carries {
		k := c.carried(&p.carries[i])
		if k.held--; k.held <= 0 {
			k.choice.carried = slices.DeleteFunc(k.choice.carried, func(o *carried) bool { return o == k })
			c.dropUnused(k.choice)
			c.releaseTopology(k.topo)
		}
	}
}

func (k *carried) add(n *Node, w *weights, times int32) {
	d := k.topo.of[n.Index]
	if d == noDomain {
		return
	}
	have := k.at[d]
	have.anti += times * w.anti
	have.affinity += times * w.affinity
	have.preferred += int64(times) * w.preferred
	if have == (weights{}) {
		delete(k.at, d)
	} else {
		k.at[d] = have
	}
}

// Others holds the terms of pods on nodes that apply to pods of one shape.
type Others struct{ list []*carried }

// Others returns the terms, of pods on nodes and of nominated pods, that select a shape's pods.
func (c *Cluster) Others(s *Shape) Others {
	k := c.holdKind(s)
	defer c.releaseKind(k)
	var o Others
	for _, ch := range k.choices {
		o.list = append(o.list, ch.carried...)
	}
	return o
}

// None reports whether there are no terms.
func (o Others) None() bool { return len(o.list) == 0 }

// Moved reports whether a node has changed its domain for one of the terms.
func (o Others) Moved(n *Node, before *NodeObject) bool {
	return slices.ContainsFunc(o.list, func(k *carried) bool { return n.Moved(before, k.topo.key) })
}

// Shun reports whether a required anti-affinity term keeps the shape's pods out of a node's domain.
func (o Others) Shun(n *Node) bool {
	for _, k := range o.list {
		if d := k.topo.of[n.Index]; d != noDomain && k.at[d].anti > 0 {
			return true
		}
	}
	return false
}

// Worth returns the score that the terms give to a node: the sum of their preferences, plus affinity for each required
// affinity term.
func (o Others) Worth(n *Node, affinity int64) int64 {
	var sum int64
	for _, k := range o.list {
		if d := k.topo.of[n.Index]; d != noDomain {
			w := k.at[d]
			sum += int64(w.affinity)*affinity + w.preferred
		}
	}
	return sum
}
