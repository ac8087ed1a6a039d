package announce

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/api/loadbalancer"
)

// Duty is a set of addresses that are held by one machine at a time, together with a lease.
type Duty struct {
	Lease     string
	Addresses []netip.Addr // sorted
	Machines  []string     // machines that may hold them, best first
	Local     bool         // of Services with externalTrafficPolicy Local
}

// localNodes returns the nodes on which a Service has ready endpoints of the address's family.
type localNodes func(*corev1.Service, netip.Addr) map[string]bool

// Duties returns which machines may announce which addresses. The result is the same on all machines with the same
// inputs. ready returns the nodes with ready endpoints of a Service, for the family of an address. Addresses that are
// routed by BGP belong to no duty.
func Duties(services []*corev1.Service, nodes []*corev1.Node, ready localNodes, routed func(netip.Addr) bool) []Duty {
	of := map[netip.Addr][]*corev1.Service{}
	for _, s := range services {
		for _, a := range loadbalancer.AnnouncedAddresses(s) {
			if !routed(a) {
				of[a] = append(of[a], s)
			}
		}
	}
	machines := eligibleMachines(nodes)
	spread := rankBySlot(machines)
	var shared [loadbalancer.Slots]Duty
	var local []Duty
	for _, a := range slices.SortedFunc(maps.Keys(of), netip.Addr.Compare) {
		stays := slices.DeleteFunc(slices.Clone(of[a]), func(s *corev1.Service) bool { return !isLocal(s) })
		if len(stays) == 0 || len(local) == loadbalancer.MaxLocal {
			d := &shared[hashText(a.String())%loadbalancer.Slots]
			d.Addresses = append(d.Addresses, a)
			continue
		}
		able := machines
		for _, s := range stays {
			candidates := ready(s, a)
			able = slices.DeleteFunc(slices.Clone(able), func(name string) bool { return !candidates[name] })
		}
		local = append(local, Duty{Addresses: []netip.Addr{a}, Machines: rankMachines(able, a.String()), Local: true})
	}
	var all []Duty
	for i, d := range shared {
		if len(d.Addresses) > 0 {
			d.Lease, d.Machines = loadbalancer.Slot(i), spread[i]
			all = append(all, d)
		}
	}
	taken := map[uint64]bool{}
	for _, d := range local {
		at := hashText(d.Addresses[0].String()) % loadbalancer.MaxLocal
		for taken[at] {
			at = (at + 1) % loadbalancer.MaxLocal
		}
		taken[at] = true
		d.Lease = loadbalancer.LocalSlot(int(at))
		all = append(all, d)
	}
	return all
}

func isLocal(s *corev1.Service) bool {
	return s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// eligibleMachines returns the machines that may hold addresses: the ready ones, or all if none is ready.
func eligibleMachines(nodes []*corev1.Node) []string {
	var ready, all []string
	for _, n := range nodes {
		if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; excluded || n.DeletionTimestamp != nil {
			continue
		}
		all = append(all, n.Name)
		if isReady(n) {
			ready = append(ready, n.Name)
		}
	}
	if len(ready) == 0 {
		return all
	}
	return ready
}

// IsRelevantUpdate reports whether an update of a node changes which machines may hold addresses.
func IsRelevantUpdate(before, after *corev1.Node) bool {
	return isReady(before) != isReady(after) || !maps.Equal(before.Labels, after.Labels) ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil)
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// rankBySlot ranks the machines for each slot. No machine comes first for more slots than its share, and a machine that
// comes or goes changes the order of few slots.
func rankBySlot(machines []string) (all [loadbalancer.Slots][]string) {
	if len(machines) == 0 {
		return all
	}
	share := (loadbalancer.Slots + len(machines) - 1) / len(machines)
	counts := map[string]int{}
	for i := range all {
		list := rankMachines(machines, loadbalancer.Slot(i))
		best := slices.IndexFunc(list, func(name string) bool { return counts[name] < share })
		name := list[best]
		counts[name]++
		all[i] = append([]string{name}, slices.Delete(list, best, best+1)...)
	}
	return all
}

// rankMachines returns the machines sorted by a hash of their name and a text. Each text has its own order.
func rankMachines(machines []string, of string) []string {
	list := slices.Clone(machines)
	slices.SortFunc(list, func(a, b string) int {
		return cmp.Or(cmp.Compare(hashText(a+"\x00"+of), hashText(b+"\x00"+of)), cmp.Compare(a, b))
	})
	return list
}

func hashText(text string) uint64 {
	sum := sha256.Sum256([]byte(text))
	return binary.BigEndian.Uint64(sum[:])
}
