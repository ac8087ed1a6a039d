package decide

import (
	"slices"

	"clusterctl/hcl/config"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// Parts is the part of the configuration and of the applied objects that -target and -exclude select.
type Parts struct {
	Declared  *config.Cluster
	Before    []state.Object // applied objects that are selected
	Untouched []state.Object // applied objects that are not touched
}

// SelectParts returns what the run selects of the configuration and of the objects in the state. declared are the
// objects that the configuration declares.
func (p *Situation) SelectParts(declared []state.Object) (parts Parts) {
	if len(p.Options.Targets) == 0 && len(p.Options.Excludes) == 0 {
		for _, o := range p.State.Objects {
			if !p.IsKept(o.Address) {
				parts.Before = append(parts.Before, o)
			}
		}
		parts.Declared = p.Config
		return parts
	}
	// A machine that was left out before it ever joined has no node to label.
	copied := WithMachines(p.Config, func(m config.Machine) bool {
		return p.Options.IsSelected(m.Address) || p.State.Machines[m.Address].HasJoined
	})
	copied.Workloads, copied.Objects = nil, nil
	for _, w := range p.Config.Workloads {
		if p.Options.IsSelected(w.Address) {
			copied.Workloads = append(copied.Workloads, w)
		}
	}
	for _, o := range p.Config.Objects {
		if p.Options.IsSelected(o.Address) {
			copied.Objects = append(copied.Objects, o)
		}
	}
	// An object of a selected block may have moved to a block that is not selected. It is still declared, so it is not
	// touched.
	for _, o := range p.State.Objects {
		elsewhere := slices.ContainsFunc(declared,
			func(d state.Object) bool { return d.IsSame(o) && !p.Options.IsSelected(d.Address) })
		if p.Options.IsSelected(o.Address) && !elsewhere {
			if !p.IsKept(o.Address) {
				parts.Before = append(parts.Before, o)
			}
		} else {
			parts.Untouched = append(parts.Untouched, o)
		}
	}
	parts.Declared = copied
	return parts
}

// ReplacedObjects returns the applied objects that are to be deleted and created again. It leaves out objects that the
// API would not accept again.
func (p *Situation) ReplacedObjects(refusals session.RefusedError) (list []state.Object) {
	for _, o := range p.State.Objects {
		refused := slices.ContainsFunc(refusals.List,
			func(r session.Refusal) bool { return r.Kind == o.Kind && r.Name == o.FullName() })
		if p.Options.IsReplaced(o.Address) && p.Options.IsSelected(o.Address) && !refused {
			list = append(list, o)
		}
	}
	return list
}

// WithMachines returns a copy of a configuration with some of its machines.
func WithMachines(c *config.Cluster, which func(config.Machine) bool) *config.Cluster {
	copied := *c
	copied.Machines = nil
	for _, m := range c.Machines {
		if which(m) {
			copied.Machines = append(copied.Machines, m)
		}
	}
	return &copied
}
