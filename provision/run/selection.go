package run

import (
	"slices"

	"clusterctl/hcl/config"
	"clusterctl/provision/state"
)

// selection is what -target and -exclude leave of the configuration, of the objects
// that were applied, and the objects that are not touched.
func (p *Prepared) selection() (c *config.Cluster, before, rest []state.Object, err error) {
	e := p.engine
	if len(e.Targets) == 0 && len(e.Excludes) == 0 {
		return e.Config, p.State.Objects, nil, nil
	}
	copied := *e.Config
	copied.Workloads, copied.Objects = nil, nil
	for _, w := range e.Config.Workloads {
		if e.selected("workload." + w.Name) {
			copied.Workloads = append(copied.Workloads, w)
		}
	}
	for _, o := range e.Config.Objects {
		if e.selected(o.Address) {
			copied.Objects = append(copied.Objects, o)
		}
	}
	// An object that was applied by a block that is selected, and is another one's now, is declared: it is not touched.
	declared, err := p.live.References(e.Config)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, o := range p.State.Objects {
		elsewhere := slices.ContainsFunc(declared, func(d state.Object) bool { return d.Same(o) && !e.selected(d.Address) })
		if e.selected(o.Address) && !elsewhere {
			before = append(before, o)
		} else {
			rest = append(rest, o)
		}
	}
	return &copied, before, rest, nil
}
