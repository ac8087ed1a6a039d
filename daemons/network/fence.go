package network

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"clusterctl/daemons/network/link"
	"clusterctl/daemons/nft"
	"clusterctl/daemons/nft/kernel"
)

// fenceName is the name of the tables that protect the overlay.
const fenceName = "clusterctl-overlay"

const (
	fencePeers = "machines" // addresses of the machines that may send wrapped packets to this one
	inputHook  = "input"
	throughIt  = "forward"
)

// fence restricts wrapped packets to the machines of the overlay. The kernel unwraps every packet that arrives at the
// port, and its contents could claim any sender, which network policies would trust. The fence also drops wrapped
// packets from pods, to their own machine and to other machines, where they would appear with their machine's address.
type fence struct {
	mu      sync.Mutex
	port    int
	up      bool
	tables  map[nft.Family]*nft.Table
	kernels map[nft.Family]*kernel.Kernel
}

var families = []nft.Family{nft.IPv4, nft.IPv6}

// raise accepts wrapped packets only from the given addresses.
func (f *fence) raise(port int, from []netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tables == nil || f.port != port {
		f.port, f.tables, f.kernels = port, map[nft.Family]*nft.Table{}, map[nft.Family]*kernel.Kernel{}
		for _, family := range families {
			t, err := nft.NewTable(family, fenceName, fenceRules(port))
			if err != nil {
				return fmt.Errorf("keep others out of %s: %w", overlayName, err)
			}
			f.tables[family], f.kernels[family] = t, &kernel.Kernel{}
		}
	}
	var failures []error
	for _, family := range families {
		unique := map[netip.Addr]bool{}
		for _, a := range from {
			if a = a.Unmap(); a.Is4() == (family == nft.IPv4) {
				unique[a] = true
			}
		}
		var list []nft.Element
		for _, a := range slices.SortedFunc(maps.Keys(unique), netip.Addr.Compare) {
			list = append(list, nft.Element{Key: nft.Key{Source: nft.One(a)}})
		}
		peers := &nft.Fragment{}
		if len(list) > 0 {
			peers.Elements = map[string][]nft.Element{fencePeers: list}
		}
		if err := f.tables[family].Put(fencePeers, peers); err != nil {
			failures = append(failures, err)
		}
	}
	f.up = true
	if err := errors.Join(append(failures, f.put())...); err != nil {
		return fmt.Errorf("keep others out of %s: %w", overlayName, err)
	}
	return nil
}

// fenceRules returns the rules that do not depend on the addresses.
func fenceRules(port int) *nft.Fragment {
	wrapped := nft.Rule{nft.Is{Protocol: nft.UDP}, nft.ToPorts{First: uint16(port), Last: uint16(port)}}
	and := func(before, after nft.Rule) nft.Rule {
		return slices.Concat(before, wrapped, after, nft.Rule{nft.Do{Verdict: nft.Verdict{Action: "drop"}}})
	}
	in := []nft.Rule{and(nil, nft.Rule{nft.In{Set: fencePeers, Key: []nft.Field{nft.Source}, Not: true}})}
	var out []nft.Rule
	for _, prefix := range []string{link.Prefix, formerBridge} {
		in = append(in, and(nft.Rule{nft.Through{Prefix: prefix}}, nil))
		out = append(
			out,
			and(
				nft.Rule{nft.Through{Prefix: prefix}},
				nft.Rule{nft.In{Set: fencePeers, Key: []nft.Field{nft.Destination}}},
			),
		)
	}
	return &nft.Fragment{
		Sets: map[string]nft.Set{fencePeers: {Key: []nft.Field{nft.Source}}},
		Chains: map[string]nft.Chain{
			inputHook: {Hook: &nft.Hook{Type: "filter", Name: inputHook}, Rules: in},
			throughIt: {Hook: &nft.Hook{Type: "filter", Name: throughIt}, Rules: out},
		},
	}
}

// put writes the rules to the kernel.
func (f *fence) put() error {
	f.look(true)
	var failures []error
	for _, family := range families {
		failures = append(failures, f.kernels[family].Apply(f.tables[family]))
	}
	return errors.Join(failures...)
}

// look finds tables in the kernel that another program has changed, so that they are compared completely when they are
// next applied. It reports whether there are any. With deep, it checks every rule, otherwise only what a flush would
// remove.
func (f *fence) look(deep bool) (changed bool) {
	for _, family := range families {
		k := f.kernels[family]
		if intact, err := k.Intact(f.tables[family], deep); err != nil || !intact {
			k.Forget()
		}
		changed = changed || !k.Known()
	}
	return changed
}

// keep restores the rules if another program has changed them. deep is passed to look.
func (f *fence) keep(deep bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.up || !f.look(deep) {
		return nil
	}
	if err := f.put(); err != nil {
		return fmt.Errorf("keep others out of %s: %w", overlayName, err)
	}
	return nil
}

// drop removes the rules after the overlay was removed.
func (f *fence) drop() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.up, f.tables = false, nil
	var failures []error
	for _, family := range families {
		failures = append(failures, kernel.Remove(family, fenceName))
	}
	return errors.Join(failures...)
}
