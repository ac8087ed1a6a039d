package device

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"clusterctl/daemons/api"
)

// Catalog holds all published devices by pool, with the taints from DeviceTaintRules. A Catalog has no lock: its owner
// must serialize access.
type Catalog struct {
	pools map[poolID]*pool
	rules map[string]*resourcev1.DeviceTaintRule

	needsRebuild bool               // local and shared must be rebuilt
	local        map[string][]*pool // by node: pools that only this node can use
	shared       []*pool            // all other pools
}

type poolID struct{ driver, name string }

// pool holds the slices of one pool.
type pool struct {
	poolID
	slices map[string]*slice // of all generations, by name

	// current holds the slices of the newest generation, sorted by name.
	current    []*slice
	incomplete bool // slices are missing
	invalid    bool // the slices contradict each other
	counters   map[string]map[string]resourcev1.Counter
	devices    map[string]*entry
}

// NewCatalog returns an empty catalog.
func NewCatalog() *Catalog {
	return &Catalog{pools: map[poolID]*pool{}, rules: map[string]*resourcev1.DeviceTaintRule{}}
}

// SetSlice adds or updates a slice.
func (c *Catalog) SetSlice(o *resourcev1.ResourceSlice) {
	c.DropSlice(o)
	id := poolID{o.Spec.Driver, o.Spec.Pool.Name}
	p := c.pools[id]
	if p == nil {
		p = &pool{poolID: id, slices: map[string]*slice{}}
		c.pools[id] = p
	}
	p.slices[o.Name] = newSlice(o)
	c.rebuildPool(p)
}

// DropSlice removes a slice.
func (c *Catalog) DropSlice(o *resourcev1.ResourceSlice) {
	p := c.pools[poolID{o.Spec.Driver, o.Spec.Pool.Name}]
	if p == nil || p.slices[o.Name] == nil {
		return
	}
	if delete(p.slices, o.Name); len(p.slices) == 0 {
		delete(c.pools, p.poolID)
		c.needsRebuild = true
		return
	}
	c.rebuildPool(p)
}

// SetRule adds or updates a rule that taints devices.
func (c *Catalog) SetRule(r *resourcev1.DeviceTaintRule) {
	c.rules[r.Name] = r
	c.applyRules()
}

// DropRule removes a rule.
func (c *Catalog) DropRule(r *resourcev1.DeviceTaintRule) {
	delete(c.rules, r.Name)
	c.applyRules()
}

func (c *Catalog) applyRules() {
	for _, p := range c.pools {
		c.taintPool(p)
	}
}

func (c *Catalog) taintPool(p *pool) {
	for _, s := range p.current {
		for _, e := range s.devices {
			e.taints = e.Taints
			for _, name := range slices.Sorted(maps.Keys(c.rules)) {
				if r := c.rules[name]; api.TaintsDevice(r, e.Driver, e.Pool, e.DeviceID.Device) {
					e.taints = append(e.taints[:len(e.taints):len(e.taints)], r.Spec.Taint)
				}
			}
		}
	}
}

// rebuildPool rebuilds a pool from its newest generation. Nothing is allocated from an incomplete pool, which is being
// updated. Nothing is allocated either from an invalid pool, which has two devices of one name or uses undeclared
// counters.
func (c *Catalog) rebuildPool(p *pool) {
	c.needsRebuild = true
	newest := int64(-1)
	for _, s := range p.slices {
		newest = max(newest, s.Spec.Pool.Generation)
	}
	p.current, p.incomplete, p.invalid = nil, false, false
	p.counters, p.devices = map[string]map[string]resourcev1.Counter{}, map[string]*entry{}
	for _, s := range p.slices {
		if s.Spec.Pool.Generation == newest {
			p.current = append(p.current, s)
		}
	}
	slices.SortFunc(p.current, func(a, b *slice) int { return cmp.Compare(a.Name, b.Name) })
	for _, s := range p.current {
		p.incomplete = p.incomplete || int64(len(p.current)) != s.Spec.Pool.ResourceSliceCount || s.hasGroups
		for _, set := range s.Spec.SharedCounters {
			_, twice := p.counters[set.Name]
			p.invalid = p.invalid || twice
			p.counters[set.Name] = set.Counters
		}
		for _, e := range s.devices {
			_, twice := p.devices[e.DeviceID.Device]
			p.invalid = p.invalid || twice
			p.devices[e.DeviceID.Device] = e
		}
	}
	for _, e := range p.devices {
		for _, wants := range e.ConsumesCounters {
			for name := range wants.Counters {
				_, ok := p.counters[wants.CounterSet][name]
				p.invalid = p.invalid || !ok
			}
		}
	}
	c.taintPool(p)
}

// poolsFor returns the pools that may have devices for a node, sorted by driver and name.
func (c *Catalog) poolsFor(node string) []*pool {
	if c.needsRebuild {
		c.needsRebuild, c.local, c.shared = false, map[string][]*pool{}, nil
		for _, p := range c.pools {
			if only := p.onlyNode(); only != "" {
				c.local[only] = append(c.local[only], p)
			} else {
				c.shared = append(c.shared, p)
			}
		}
	}
	out := append(slices.Clone(c.local[node]), c.shared...)
	slices.SortFunc(out,
		func(a, b *pool) int { return cmp.Or(cmp.Compare(a.driver, b.driver), cmp.Compare(a.name, b.name)) })
	return out
}

// onlyNode returns the one node that can use a pool. It returns "" if there may be several.
func (p *pool) onlyNode() string {
	name := ""
	for _, s := range p.current {
		if s.access == nil || s.access.node == "" || name != "" && s.access.node != name {
			return ""
		}
		name = s.access.node
	}
	return name
}

// devicesFor returns the devices of a pool that a node can use. relevant reports whether any of the pool's slices is
// for the node.
func (p *pool) devicesFor(n *corev1.Node) (devices []*entry, relevant bool) {
	for _, s := range p.current {
		relevant = relevant || s.access != nil && s.access.includes(n)
		for _, e := range s.devices {
			if e.access.includes(n) {
				devices, relevant = append(devices, e), true
			}
		}
	}
	return devices, relevant
}
