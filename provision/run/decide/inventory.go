package decide

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/config/inventory"
	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
)

// Inventory returns the list of machines that the cluster knows: those declared, and undeclared ones that this run
// leaves alone. A Node whose machine is not in it is deleted once its heartbeats stop. So a run with -target or
// -exclude must not drop other machines than those that it removes or forgets. A machine's identity is what was found
// on it, or otherwise what the state has.
func (p *Situation) Inventory() inventory.Inventory {
	identity := map[string]string{}
	for address, m := range p.State.Machines {
		identity[address] = machineOrigin(m)
	}
	removed := map[string]bool{}
	for _, m := range p.Machines {
		if m.Action == plan.Remove {
			removed[m.Address] = true
		} else {
			identity[m.Address] = p.OriginIdentity(m)
		}
	}
	list := inventory.Inventory{}
	add := func(m config.Machine) {
		if _, ok := list[m.Name]; ok {
			return
		}
		machine := inventory.Machine{
			ProviderID: inventory.ProviderID(p.Config.Name, identity[m.Address]),
			Roles:      slices.Clone(m.Roles),
			Addresses:  m.IPs(),
			Region:     m.Labels[corev1.LabelTopologyRegion],
			Zone:       m.Labels[corev1.LabelTopologyZone],
		}
		for _, a := range m.External {
			machine.External = append(machine.External, a.String())
		}
		list[m.Name] = machine
	}
	declared := map[string]bool{}
	for _, m := range p.Config.Machines {
		declared[m.Address] = true
		add(m)
	}
	for _, address := range SortedMachines(p.State) {
		forgotten := p.IsKept(address) && p.Options.IsSelected(address)
		if !declared[address] && !removed[address] && !forgotten {
			add(p.State.Machines[address].Machine)
		}
	}
	clearSharedIDs(list)
	return list
}

// clearSharedIDs clears provider IDs that several machines share, as copies of one disk do, because they do not
// identify a machine.
func clearSharedIDs(list inventory.Inventory) {
	count := map[string]int{}
	for _, m := range list {
		count[m.ProviderID]++
	}
	for name, m := range list {
		if count[m.ProviderID] > 1 {
			m.ProviderID = ""
			list[name] = m
		}
	}
}
