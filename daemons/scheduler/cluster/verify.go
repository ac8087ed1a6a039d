package cluster

import (
	"fmt"
	"maps"
	"slices"
)

// Verify recounts everything and returns an error for the first difference to the tables.
func (c *Cluster) Verify() error {
	for _, t := range c.tables {
		if err := c.verifyTable(t); err != nil {
			return fmt.Errorf("table %q: %w", t.id, err)
		}
	}
	for _, n := range c.byName {
		var requested, usual Resources
		for i, p := range n.Pods {
			if p.node != n || p.slot != i {
				return fmt.Errorf("node %s: pod %s is not where it says", n.Name, p.Key())
			}
			requested.add(p.used, 1)
			usual.add(p.usedWithDefaults, 1)
		}
		if !sameAmounts(&requested, &n.Requested) || !sameAmounts(&usual, &n.RequestedWithDefaults) {
			return fmt.Errorf("node %s: %v and %v are taken of it, not %v and %v", n.Name, requested, usual,
				n.Requested, n.RequestedWithDefaults)
		}
	}
	for _, ch := range c.selectors {
		for _, k := range ch.termDomains {
			if err := c.verifyTerms(ch, k); err != nil {
				return fmt.Errorf("terms about %q by %s: %w", ch.id, k.topo.key, err)
			}
		}
		for _, k := range c.podGroups {
			if matches := ch.matches(k.namespace, k.labels, c.namespaces); matches != ch.groups[k] ||
				matches != slices.Contains(k.selectors, ch) {
				return fmt.Errorf("%q is about %q: %v, and not as noted", ch.id, k.key, matches)
			}
		}
	}
	return nil
}

func sameAmounts(a, b *Resources) bool {
	for name := range b.Other {
		if a.Other[name] != b.Other[name] {
			return false
		}
	}
	return a.MilliCPU == b.MilliCPU && a.Memory == b.Memory && a.Ephemeral == b.Ephemeral
}

func (c *Cluster) verifyTable(t *Table) error {
	counts, nodes, total := map[int32]int32{}, map[int32]int32{}, 0
	for _, n := range c.byName {
		d := t.topo.domainOf[n.Index]
		if d == noDomain {
			continue
		}
		if t.class != nil {
			if t.class.contains(n) != t.class.members[n.Index] {
				return fmt.Errorf("node %s counts: %v, and not as noted", n.Name, t.class.contains(n))
			}
			if !t.class.members[n.Index] {
				continue
			}
			nodes[d]++
		}
		for _, p := range n.Pods {
			if t.selector.matches(p.Namespace, p.Labels, c.namespaces) &&
				!(t.excludeDeleting && p.DeletionTimestamp != nil) {
				counts[d]++
				total++
			}
		}
	}
	for d, current := range t.counts {
		if counts[int32(d)] != current {
			return fmt.Errorf("domain %d has %d pods, not %d", d, counts[int32(d)], current)
		}
	}
	if total != t.total {
		return fmt.Errorf("%d pods, not %d", total, t.total)
	}
	if t.class == nil {
		return nil
	}
	minimum := int32(1 << 30)
	for d := range nodes {
		minimum = min(minimum, counts[d])
	}
	if len(nodes) != t.domains || t.domains > 0 && int(minimum) != t.Minimum() {
		return fmt.Errorf("%d domains with %d pods or more, not %d with %d", len(nodes), minimum, t.domains,
			t.Minimum())
	}
	return nil
}

func (c *Cluster) verifyTerms(ch *activeSelector, k *termDomains) error {
	at := map[int32]weights{}
	for _, n := range c.byName {
		d := k.topo.domainOf[n.Index]
		if d == noDomain {
			continue
		}
		for _, p := range n.Pods {
			for i := range p.weightedTerms {
				if one := &p.weightedTerms[i]; one.id == ch.id && one.Key == k.topo.key {
					current := at[d]
					current.anti += one.anti
					current.affinity += one.affinity
					current.preferred += one.preferred
					at[d] = current
				}
			}
		}
	}
	maps.DeleteFunc(at, func(_ int32, w weights) bool { return w == weights{} })
	if !maps.Equal(at, k.byDomain) {
		return fmt.Errorf("%v, not %v", at, k.byDomain)
	}
	return nil
}
