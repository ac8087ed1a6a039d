package device

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"clusterctl/daemons/api"
)

// Catalog is all devices that drivers tell of, by pools, with the taints that rules give them. A Catalog has no lock:
// its owner has.
type Catalog struct {
	pools map[poolID]*pool
	rules map[string]*resourcev1.DeviceTaintRule

	stale  bool               // what follows must be made anew
	local  map[string][]*pool // pools of one node alone, by that
	shared []*pool            // the others
}

type poolID struct{ driver, name string }

// pool is the slices of one pool.
type pool struct {
	poolID
	slices map[string]*slice // of all generations, by name

	// Of the newest generation, in the order of names.
	current    []*slice
	incomplete bool // slices are missing
	invalid    bool // they do not fit together
	counters   map[string]map[string]resourcev1.Counter
	devices    map[string]*entry
}

// NewCatalog returns an empty catalog.
func NewCatalog() *Catalog {
	return &Catalog{pools: map[poolID]*pool{}, rules: map[string]*resourcev1.DeviceTaintRule{}}
}

// SetSlice takes in a slice.
func (c *Catalog) SetSlice(o *resourcev1.ResourceSlice) {
	c.DropSlice(o)
	id := poolID{o.Spec.Driver, o.Spec.Pool.Name}
	p := c.pools[id]
	if p == nil {
		p = &pool{poolID: id, slices: map[string]*slice{}}
		c.pools[id] = p
	}
	p.slices[o.Name] = newSlice(o)
	c.renew(p)
}

// DropSlice forgets a slice.
func (c *Catalog) DropSlice(o *resourcev1.ResourceSlice) {
	p := c.pools[poolID{o.Spec.Driver, o.Spec.Pool.Name}]
	if p == nil || p.slices[o.Name] == nil {
		return
	}
	if delete(p.slices, o.Name); len(p.slices) == 0 {
		delete(c.pools, p.poolID)
		c.stale = true
		return
	}
	c.renew(p)
}

// SetRule takes in a rule that taints devices.
func (c *Catalog) SetRule(r *resourcev1.DeviceTaintRule) {
	c.rules[r.Name] = r
	c.taint()
}

// DropRule forgets one.
func (c *Catalog) DropRule(r *resourcev1.DeviceTaintRule) {
	delete(c.rules, r.Name)
	c.taint()
}

func (c *Catalog) taint() {
	for _, p := range c.pools {
		c.taintPool(p)
	}
}

func (c *Catalog) taintPool(p *pool) {
	for _, s := range p.current {
		for _, e := range s.devices {
			e.taints = e.Taints
			for _, name := range slices.Sorted(maps.Keys(c.rules)) {
				if r := c.rules[name]; api.TaintsDevice(r, e.Driver, e.Pool, e.ID.Device) {
					e.taints = append(e.taints[:len(e.taints):len(e.taints)], r.Spec.Taint)
				}
			}
		}
	}
}

// renew looks at the newest generation of a pool. A pool of which slices are missing is being updated, and one with
// devices of one name twice or with counters that nobody has declared cannot be counted: nothing is allocated from
// either.
func (c *Catalog) renew(p *pool) {
	c.stale = true
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
		p.incomplete = p.incomplete || int64(len(p.current)) != s.Spec.Pool.ResourceSliceCount || s.groups
		for _, set := range s.Spec.SharedCounters {
			_, twice := p.counters[set.Name]
			p.invalid = p.invalid || twice
			p.counters[set.Name] = set.Counters
		}
		for _, e := range s.devices {
			_, twice := p.devices[e.ID.Device]
			p.invalid = p.invalid || twice
			p.devices[e.ID.Device] = e
		}
	}
	for _, e := range p.devices {
		for _, wants := range e.ConsumesCounters {
			for name := range wants.Counters {
				_, known := p.counters[wants.CounterSet][name]
				p.invalid = p.invalid || !known
			}
		}
	}
	c.taintPool(p)
}

// near returns the pools that may have devices for a node, ordered by driver and name.
func (c *Catalog) near(node string) []*pool {
	if c.stale {
		c.stale, c.local, c.shared = false, map[string][]*pool{}, nil
		for _, p := range c.pools {
			if only := p.only(); only != "" {
				c.local[only] = append(c.local[only], p)
			} else {
				c.shared = append(c.shared, p)
			}
		}
	}
	out := append(slices.Clone(c.local[node]), c.shared...)
	slices.SortFunc(
		out,
		func(a, b *pool) int { return cmp.Or(cmp.Compare(a.driver, b.driver), cmp.Compare(a.name, b.name)) },
	)
	return out
}

// only is the one node from which a pool can be reached; empty: there may be others.
func (p *pool) only() string {
	name := ""
	for _, s := range p.current {
		if s.reach == nil || s.reach.node == "" || name != "" && s.reach.node != name {
			return ""
		}
		name = s.reach.node
	}
	return name
}

// reachable are the devices of a pool for a node. relevant reports whether any of its slices is for the node at all.
func (p *pool) reachable(n *corev1.Node) (devices []*entry, relevant bool) {
	for _, s := range p.current {
		relevant = relevant || s.reach != nil && s.reach.from(n)
		for _, e := range s.devices {
			if e.reach.from(n) {
				devices, relevant = append(devices, e), true
			}
		}
	}
	return devices, relevant
}
