package decide

import (
	"fmt"
	"strings"

	"clusterctl/hcl/config"
)

// CheckSurvivors returns an error if no machine of the present control plane stays in the control plane. Until others
// have joined, only these machines have the store's data.
func (p *Situation) CheckSurvivors() error {
	if p.IsNewCluster || p.Options.IsDestroy {
		return nil
	}
	isPresent := func(address string) bool {
		machine := p.State.Machines[address]
		return machine.HasJoined && machine.Machine.HasRole(config.RoleControlPlane)
	}
	var declared, present []string
	for _, m := range p.Config.ControlPlane() {
		if isPresent(m.Address) {
			return nil
		}
		declared = append(declared, fmt.Sprintf("%s (%s:%d)", m.Address, m.Source.File, m.Source.Line))
	}
	for _, address := range SortedMachines(p.State) {
		if isPresent(address) {
			present = append(present, address)
		}
	}
	if len(declared) == 0 {
		return fmt.Errorf("no machine has the role control-plane any more: leave one of %s in it; to remove all "+
			"machines, run clusterctl destroy", strings.Join(present, ", "))
	}
	return fmt.Errorf("the store's data would be lost: %s would be the control plane, and none of its present "+
		"machines (%s) stays in it. Leave one of them in it and apply, then take it out and apply again",
		strings.Join(declared, ", "), strings.Join(present, ", "))
}
