package plan

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"clusterctl/hcl/config"
	"clusterctl/provision/state"
)

// MatchMachines matches the machines of the state with those that are declared. A renamed block still means the same
// machine, so machines are matched by IP address, then by the block's address, then by name. now has the state's
// machines under their present block addresses. Machines that are no longer declared are added to it under a free
// address. former has the former addresses of renamed blocks. A match that would rename a machine is an error.
func MatchMachines(
	declared []config.Machine,
	recorded map[string]state.Machine,
) (now map[string]state.Machine, former map[string]string, err error) {
	now, former = map[string]state.Machine{}, map[string]string{}
	left := maps.Clone(recorded) // not matched yet
	var errs []error
	found := func(d config.Machine, address string) {
		k := left[address]
		delete(left, address)
		if k.Machine.Name != d.Name {
			errs = append(errs, checkName(d, address, k.Machine))
		}
		if address != d.Address {
			former[d.Address] = address
		}
		k.Machine.Address = d.Address
		now[d.Address] = k
	}
	byIP, byName := map[netip.Addr]string{}, map[string]string{}
	for address, k := range recorded {
		byIP[k.Machine.IP], byName[k.Machine.Name] = address, address
	}
	for _, by := range []func(d config.Machine) string{
		func(d config.Machine) string { return byIP[d.IP] },
		func(d config.Machine) string { return d.Address },
		func(d config.Machine) string { return byName[d.Name] },
	} {
		for _, d := range declared {
			_, done := now[d.Address]
			address := by(d)
			if _, ok := left[address]; ok && !done {
				found(d, address)
			}
		}
	}
	for _, address := range slices.Sorted(maps.Keys(left)) {
		k, free := left[address], address
		for _, taken := now[free]; taken; _, taken = now[free] {
			free += " (former)" // the block's address now belongs to another machine
		}
		k.Machine.Address = free
		now[free] = k
	}
	return now, former, errors.Join(errs...)
}

func checkName(d config.Machine, address string, k config.Machine) error {
	return fmt.Errorf("%s (%s:%d): the machine at %s was applied as %s under the name %q, and is declared with the "+
		"name %q. A node and a member of the store keep their names: write name = %q in this block. To replace the "+
		"machine under another name, apply once without the block", d.Address, d.Source.File, d.Source.Line, k.IP,
		address, k.Name, d.Name, k.Name)
}
