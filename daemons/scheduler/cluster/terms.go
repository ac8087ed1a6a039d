package cluster

import "slices"

// termDomains records equal terms of pods on nodes: the domains of these pods, and the weight of the terms there.
type termDomains struct {
	selector *activeSelector
	topo     *topology
	users    int
	byDomain map[int32]weights // by domain
}

// weights sums up terms: the number of required anti-affinity terms, the number of required affinity terms, and the sum
// of preferences.
type weights struct {
	anti, affinity int32
	preferred      int64
}

// weightedTerm is a term of a shape with its weights.
type weightedTerm struct {
	Term
	weights
}

func (c *Cluster) termDomainsOf(t *weightedTerm) *termDomains {
	ch := c.activeSelectorOf(t.PodSelector)
	for _, k := range ch.termDomains {
		if k.topo.key == t.Key {
			return k
		}
	}
	k := &termDomains{selector: ch, topo: c.topology(t.Key), byDomain: map[int32]weights{}}
	ch.termDomains = append(ch.termDomains, k)
	return k
}

func (c *Cluster) acquireTerms(p *Pod) {
	for i := range p.weightedTerms {
		c.termDomainsOf(&p.weightedTerms[i]).users++
	}
}

func (c *Cluster) releaseTerms(p *Pod) {
	for i := range p.weightedTerms {
		k := c.termDomainsOf(&p.weightedTerms[i])
		if k.users--; k.users <= 0 {
			k.selector.termDomains = slices.DeleteFunc(k.selector.termDomains,
				func(o *termDomains) bool { return o == k })
			c.removeUnused(k.selector)
			c.releaseTopology(k.topo)
		}
	}
}

func (k *termDomains) add(n *Node, w *weights, times int32) {
	d := k.topo.domainOf[n.Index]
	if d == noDomain {
		return
	}
	current := k.byDomain[d]
	current.anti += times * w.anti
	current.affinity += times * w.affinity
	current.preferred += int64(times) * w.preferred
	if current == (weights{}) {
		delete(k.byDomain, d)
	} else {
		k.byDomain[d] = current
	}
}

// ExistingTerms holds the terms of pods on nodes that apply to pods of one shape.
type ExistingTerms struct{ list []*termDomains }

// ExistingTerms returns the terms, of pods on nodes and of nominated pods, that select a shape's pods.
func (c *Cluster) ExistingTerms(s *Shape) ExistingTerms {
	k := c.acquirePodGroup(s)
	defer c.releasePodGroup(k)
	var o ExistingTerms
	for _, ch := range k.selectors {
		o.list = append(o.list, ch.termDomains...)
	}
	return o
}

// IsEmpty reports whether there are no terms.
func (o ExistingTerms) IsEmpty() bool { return len(o.list) == 0 }

// HasMoved reports whether a node has changed its domain for one of the terms.
func (o ExistingTerms) HasMoved(n *Node, before *NodeObject) bool {
	return slices.ContainsFunc(o.list, func(k *termDomains) bool { return n.HasMoved(before, k.topo.key) })
}

// Forbids reports whether a required anti-affinity term keeps the shape's pods out of a node's domain.
func (o ExistingTerms) Forbids(n *Node) bool {
	for _, k := range o.list {
		if d := k.topo.domainOf[n.Index]; d != noDomain && k.byDomain[d].anti > 0 {
			return true
		}
	}
	return false
}

// Score returns the score that the terms give to a node: the sum of their preferences, plus affinity for each required
// affinity term.
func (o ExistingTerms) Score(n *Node, affinity int64) int64 {
	var sum int64
	for _, k := range o.list {
		if d := k.topo.domainOf[n.Index]; d != noDomain {
			w := k.byDomain[d]
			sum += int64(w.affinity)*affinity + w.preferred
		}
	}
	return sum
}
