package decide

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

// ChooseMachines returns the machines of the run: those declared, and those in the state that are no longer declared.
func (p *Situation) ChooseMachines() (list []*session.Machine) {
	declared := map[string]bool{}
	for _, m := range p.Config.Machines {
		declared[m.Address] = true
		if p.Options.IsSelected(m.Address) {
			action := plan.Change
			if p.Options.IsDestroy {
				action = plan.Remove
			} else if !p.State.Machines[m.Address].HasJoined {
				action = plan.Create
			}
			list = append(list, &session.Machine{Machine: m, Action: action})
		}
	}
	for _, address := range SortedMachines(p.State) {
		if !declared[address] && p.Options.IsSelected(address) && !p.IsKept(address) {
			list = append(list, &session.Machine{Machine: p.State.Machines[address].Machine, Action: plan.Remove})
		}
	}
	return list
}

// SortedMachines returns the addresses of the machines of a state in order.
func SortedMachines(s *state.State) []string { return slices.Sorted(maps.Keys(s.Machines)) }

// CheckSelection returns an error if a selection matches no address, because it would silently spare or change nothing.
func (p *Situation) CheckSelection() error {
	addresses := append(slices.Collect(maps.Keys(p.State.Machines)), "cluster."+p.Config.Name)
	for _, m := range p.Config.Machines {
		addresses = append(addresses, m.Address)
	}
	for _, w := range p.Config.Workloads {
		addresses = append(addresses, w.Address)
	}
	for _, o := range p.Config.Objects {
		addresses = append(addresses, o.Address)
	}
	for _, o := range p.State.Objects {
		addresses = append(addresses, o.Address)
	}
	for _, chosen := range []struct {
		flag string
		list []string
	}{{"-target", p.Options.Targets}, {"-exclude", p.Options.Excludes}} {
		for _, t := range chosen.list {
			if !slices.ContainsFunc(addresses, func(a string) bool { return config.Includes(t, a) }) {
				return fmt.Errorf("%s %s: there is no such machine, workload or object, neither declared nor applied "+
					"before. An address with an index is quoted in a shell: 'machine.node[\"a\"]'", chosen.flag, t)
			}
		}
	}
	return nil
}

// CheckDestroyable refuses to destroy a part of a cluster that continues: its members would stay in the store, which
// counts them, and its nodes in the API. Machines leave a cluster when their blocks are deleted.
func (p *Situation) CheckDestroyable() error {
	if !p.Options.IsDestroy || len(p.Options.Targets)+len(p.Options.Excludes) == 0 {
		return nil
	}
	flag := "-exclude"
	if len(p.Options.Targets) > 0 {
		flag = "-target"
	}
	if len(p.Machines) == 0 {
		return fmt.Errorf("destroy %s: destroy takes machines away, and what is in the cluster with the last one of "+
			"them; none is selected. To take an object or a workload away, take its block out and apply", flag)
	}
	control, stay := 0, 0
	for address, m := range p.State.Machines {
		if m.HasJoined && m.Machine.HasRole(config.RoleControlPlane) {
			control++
			if !p.Options.IsSelected(address) {
				stay++
			}
		}
	}
	// Destroying all but a few machines, for example those that do not answer, ends the cluster and is allowed.
	if stay == 0 || len(p.Options.Targets) == 0 && stay*2 <= control {
		return nil
	}
	var list []string
	for _, m := range p.Machines {
		list = append(list, m.Address)
	}
	slices.Sort(list)
	return fmt.Errorf("destroy %s: the cluster lives on without %s, which would stay in its store and in the API. "+
		"Take the blocks out and apply: what leaves is drained and leaves in good order. A machine that does not "+
		"answer needs no -exclude: the others are cleaned all the same", flag, strings.Join(list, ", "))
}
