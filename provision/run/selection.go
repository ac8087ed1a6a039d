package run

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// selectParts returns the part of the configuration and of the applied objects that -target and -exclude select, and
// the applied objects that are not touched.
func (p *Prepared) selectParts() (c *config.Cluster, before, rest []state.Object, err error) {
	e := p.engine
	if len(e.Targets) == 0 && len(e.Excludes) == 0 {
		for _, o := range p.State.Objects {
			if !e.isKeptByRemovedBlock(o.Address) {
				before = append(before, o)
			}
		}
		return e.Config, before, nil, nil
	}
	// A machine that was left out before it ever joined has no node to label.
	copied := withMachines(e.Config, func(m config.Machine) bool { return e.isSelected(m.Address) || p.hasJoined(m) })
	copied.Workloads, copied.Objects = nil, nil
	for _, w := range e.Config.Workloads {
		if e.isSelected(w.Address) {
			copied.Workloads = append(copied.Workloads, w)
		}
	}
	for _, o := range e.Config.Objects {
		if e.isSelected(o.Address) {
			copied.Objects = append(copied.Objects, o)
		}
	}
	// An object of a selected block may have moved to a block that is not selected. It is still declared, so it is not
	// touched.
	declared, err := p.session.API.References(e.Config)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, o := range p.State.Objects {
		elsewhere := slices.ContainsFunc(
			declared,
			func(d state.Object) bool { return d.IsSame(o) && !e.isSelected(d.Address) },
		)
		if e.isSelected(o.Address) && !elsewhere {
			if !e.isKeptByRemovedBlock(o.Address) {
				before = append(before, o)
			}
		} else {
			rest = append(rest, o)
		}
	}
	return copied, before, rest, nil
}

// chooseMachines lists the machines of the run: those declared, and those in the state that are no longer declared.
func (p *Prepared) chooseMachines() {
	e := p.engine
	declared := map[string]bool{}
	for _, m := range e.Config.Machines {
		declared[m.Address] = true
		if e.isSelected(m.Address) {
			action := plan.Change
			if e.IsDestroy {
				action = plan.Remove
			} else if !p.State.Machines[m.Address].HasJoined {
				action = plan.Create
			}
			p.session.Machines = append(p.session.Machines, &session.Machine{Machine: m, Action: action})
		}
	}
	for _, address := range sortedMachines(p.State) {
		if !declared[address] && e.isSelected(address) && !e.isKeptByRemovedBlock(address) {
			p.session.Machines = append(p.session.Machines, &session.Machine{Machine: p.State.Machines[address].Machine, Action: plan.Remove})
		}
	}
}

func sortedMachines(s *state.State) []string { return slices.Sorted(maps.Keys(s.Machines)) }

// isSelected reports whether -target and -exclude select an address.
func (e *Engine) isSelected(address string) bool {
	match := func(list []string) bool {
		return slices.ContainsFunc(list, func(t string) bool { return config.Includes(t, address) })
	}
	return (len(e.Targets) == 0 || match(e.Targets)) && !match(e.Excludes)
}

// checkSelection returns an error if a selection matches no address, because it would silently spare or change nothing.
func (p *Prepared) checkSelection() error {
	e := p.engine
	addresses := append(slices.Collect(maps.Keys(p.State.Machines)), "cluster."+e.Config.Name)
	for _, m := range e.Config.Machines {
		addresses = append(addresses, m.Address)
	}
	for _, w := range e.Config.Workloads {
		addresses = append(addresses, w.Address)
	}
	for _, o := range e.Config.Objects {
		addresses = append(addresses, o.Address)
	}
	for _, o := range p.State.Objects {
		addresses = append(addresses, o.Address)
	}
	for _, chosen := range []struct {
		flag string
		list []string
	}{{"-target", e.Targets}, {"-exclude", e.Excludes}} {
		for _, t := range chosen.list {
			if !slices.ContainsFunc(addresses, func(a string) bool { return config.Includes(t, a) }) {
				return fmt.Errorf(
					"%s %s: there is no such machine, workload or object, neither declared nor applied before. An "+
						"address with an index is quoted in a shell: 'machine.node[\"a\"]'",
					chosen.flag,
					t,
				)
			}
		}
	}
	return nil
}

// checkDestroyable refuses to destroy a part of a cluster that continues: its members would stay in the store, which
// counts them, and its nodes in the API. Machines leave a cluster when their blocks are deleted.
func (p *Prepared) checkDestroyable() error {
	e := p.engine
	if !e.IsDestroy || len(e.Targets)+len(e.Excludes) == 0 {
		return nil
	}
	flag := "-exclude"
	if len(e.Targets) > 0 {
		flag = "-target"
	}
	if len(p.session.Machines) == 0 {
		return fmt.Errorf(
			"destroy %s: destroy takes machines away, and what is in the cluster with the last one of them; none is "+
				"selected. To take an object or a workload away, take its block out and apply",
			flag,
		)
	}
	control, stay := 0, 0
	for address, m := range p.State.Machines {
		if m.HasJoined && m.Machine.HasRole(config.RoleControlPlane) {
			control++
			if !e.isSelected(address) {
				stay++
			}
		}
	}
	// Destroying all but a few machines, for example those that do not answer, ends the cluster and is allowed.
	if stay == 0 || len(e.Targets) == 0 && stay*2 <= control {
		return nil
	}
	var list []string
	for _, m := range p.session.Machines {
		list = append(list, m.Address)
	}
	slices.Sort(list)
	return fmt.Errorf(
		"destroy %s: the cluster lives on without %s, which would stay in its store and in the API. Take the blocks "+
			"out and apply: what leaves is drained and leaves in good order. "+
			"A machine that does not answer needs no -exclude: the others are cleaned all the same",
		flag,
		strings.Join(list, ", "),
	)
}
