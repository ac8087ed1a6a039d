package fault

import (
	"math/rand/v2"
	"time"
)

// Machines are the names of a cluster's machines by role.
type Machines struct {
	Control []string
	Nodes   []string
}

// ControlUnits and NodeUnits are the daemons of a control-plane machine and of a node.
var (
	ControlUnits = []string{
		"etcd",
		"kube-apiserver",
		"kube-scheduler",
		"kube-controller-manager",
		"kube-network",
		"kube-dns",
		"metrics-server",
	}
	NodeUnits = []string{"kubelet", "containerd", "kube-proxy", "kube-network"}
)

// Plan returns n faults. The same seed gives the same faults: a longer list begins with the shorter one.
func Plan(seed uint64, m Machines, n int) []Fault {
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	seconds := func(least, most int) time.Duration { return time.Duration(least+r.IntN(most-least+1)) * time.Second }
	all := append(append([]string{}, m.Control...), m.Nodes...)
	daemon := func() ([]string, string) {
		if r.IntN(2) == 0 {
			return []string{pick(m.Control)}, pick(ControlUnits)
		}
		return []string{pick(m.Nodes)}, pick(NodeUnits)
	}
	makers := []struct {
		weight int
		make   func() Fault
	}{
		{8, func() Fault { on, unit := daemon(); return Fault{Kind: Kill, Machines: on, Unit: unit} }},
		{4, func() Fault {
			on, unit := daemon()
			return Fault{Kind: Stop, Machines: on, Unit: unit, Duration: seconds(5, 60)}
		}},
		{3, func() Fault { return Fault{Kind: Power, Machines: []string{pick(all)}, Duration: seconds(2, 45)} }},
		{3, func() Fault { return Fault{Kind: Cut, Machines: []string{pick(all)}, Duration: seconds(2, 45)} }},
		{2, func() Fault { return Fault{Kind: Slow, Machines: []string{pick(all)}, Duration: seconds(5, 30)} }},
		{1, func() Fault { return Fault{Kind: Fill, Machines: []string{pick(m.Control)}, Duration: seconds(10, 30)} }},
		{2, func() Fault { return Fault{Kind: Leader, Machines: m.Control} }},
		{1, func() Fault {
			on, unit := []string{pick(m.Control)}, "kube-apiserver"
			if r.IntN(2) == 0 {
				on, unit = []string{pick(m.Nodes)}, "kubelet"
			}
			return Fault{Kind: Expire, Machines: on, Unit: unit, Duration: seconds(15, 60)}
		}},
		{1, func() Fault { return Fault{Kind: Lose, Machines: []string{pick(m.Control)}, Duration: seconds(2, 20)} }},
		{1, func() Fault { // etcd without a majority
			spared := r.IntN(len(m.Control))
			on := append(append([]string{}, m.Control[:spared]...), m.Control[spared+1:]...)
			return Fault{Kind: Power, Machines: on, Duration: seconds(10, 30)}
		}},
	}
	total := 0
	for _, k := range makers {
		total += k.weight
	}
	var list []Fault
	for range n {
		at := r.IntN(total)
		for _, k := range makers {
			if at -= k.weight; at < 0 {
				list = append(list, k.make())
				break
			}
		}
	}
	return list
}

// FaultsOfAllUnits returns a fault of a kind for every daemon on every machine.
func FaultsOfAllUnits(kind Kind, m Machines, duration time.Duration) []Fault {
	var list []Fault
	for _, group := range []struct{ machines, units []string }{{m.Control, ControlUnits}, {m.Nodes, NodeUnits}} {
		for _, machine := range group.machines {
			for _, unit := range group.units {
				list = append(list, Fault{Kind: kind, Machines: []string{machine}, Unit: unit, Duration: duration})
			}
		}
	}
	return list
}
