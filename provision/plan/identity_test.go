package plan_test

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/state"
)

// When blocks are renamed, renumbered, removed or added, each machine in the state is found at most once. If its own
// address is declared, it is found there.
// Proves P05.
func TestMachinesAreRecognizedByTheirIdentity(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		machines := func(label string) (list []config.Machine) {
			ips := rapid.SliceOfNDistinct(rapid.IntRange(1, 9), 0, 6, rapid.ID[int]).Draw(r, label+" addresses")
			blocks := rapid.SliceOfNDistinct(rapid.IntRange(0, 6), len(ips), len(ips), rapid.ID[int]).
				Draw(r, label+" blocks")
			names := rapid.SliceOfNDistinct(rapid.IntRange(0, 6), len(ips), len(ips), rapid.ID[int]).
				Draw(r, label+" names")
			for i, ip := range ips {
				list = append(
					list,
					config.Machine{
						Address: fmt.Sprintf("machine.node[%d]", blocks[i]),
						Name:    fmt.Sprint("n", names[i]),
						IP:      netip.AddrFrom4([4]byte{10, 0, 0, byte(ip)}),
					},
				)
			}
			return list
		}
		recorded := map[string]state.Machine{}
		for _, m := range machines("known") {
			recorded[m.Address] = state.Machine{Machine: m, Identity: m.IP.String()}
		}
		declared := machines("declared")
		now, former, err := plan.MatchMachines(declared, recorded)
		if len(now) != len(recorded) {
			r.Fatalf("%d machines became %d", len(recorded), len(now))
		}
		seen := map[string]bool{}
		for address, k := range now {
			if k.Machine.Address != address || seen[k.Identity] {
				r.Errorf("%s is %+v", address, k)
			}
			seen[k.Identity] = true
		}
		renamed := false
		for _, d := range declared {
			k, ok := now[d.Address]
			for address, before := range recorded {
				if before.Machine.IP == d.IP &&
					(!ok || k.Identity != d.IP.String() || (address != d.Address) != (former[d.Address] == address)) {
					r.Errorf("%s at %s was %s, and is %+v, formerly %s", d.Address, d.IP, address, k, former[d.Address])
				}
			}
			renamed = renamed || ok && k.Machine.Name != d.Name
		}
		if renamed != (err != nil) {
			r.Errorf("a name has changed: %v, and the error is %v", renamed, err)
		}
	})
}
