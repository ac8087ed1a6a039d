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

// peerFilterName is the name of the tables that protect the overlay.
const peerFilterName = "clusterctl-overlay"

const (
	peerSet     = "machines" // addresses of the machines that may send wrapped packets to this one
	inputHook   = "input"
	forwardHook = "forward"
)

// peerFilter restricts wrapped packets to the machines of the overlay. The kernel unwraps every packet that arrives at
// the port, and its contents could claim any sender, which network policies would trust. The fence also drops wrapped
// packets from pods, to their own machine and to other machines, where they would appear with their machine's address.
type peerFilter struct {
	mu      sync.Mutex
	port    int
	up      bool
	tables  map[nft.Family]*nft.Table
	kernels map[nft.Family]*kernel.Kernel
}

var families = []nft.Family{nft.IPv4, nft.IPv6}

// allow accepts wrapped packets only from the given addresses.
func (f *peerFilter) allow(port int, from []netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tables == nil || f.port != port {
		f.port, f.tables, f.kernels = port, map[nft.Family]*nft.Table{}, map[nft.Family]*kernel.Kernel{}
		for _, family := range families {
			t, err := nft.NewTable(family, peerFilterName, peerFilterRules(port))
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
			list = append(list, nft.Element{Key: nft.Key{Source: nft.SingleAddress(a)}})
		}
		peers := &nft.Fragment{}
		if len(list) > 0 {
			peers.Elements = map[string][]nft.Element{peerSet: list}
		}
		if err := f.tables[family].Put(peerSet, peers); err != nil {
			failures = append(failures, err)
		}
	}
	f.up = true
	if err := errors.Join(append(failures, f.apply())...); err != nil {
		return fmt.Errorf("keep others out of %s: %w", overlayName, err)
	}
	return nil
}

// peerFilterRules returns the rules that do not depend on the addresses.
func peerFilterRules(port int) *nft.Fragment {
	wrapped := nft.Rule{nft.IsProtocol{Protocol: nft.UDP}, nft.ToPorts{First: uint16(port), Last: uint16(port)}}
	and := func(before, after nft.Rule) nft.Rule {
		return slices.Concat(before, wrapped, after, nft.Rule{nft.Decide{Verdict: nft.Verdict{Action: "drop"}}})
	}
	in := []nft.Rule{and(nil, nft.Rule{nft.InSet{Set: peerSet, Key: []nft.Field{nft.Source}, Not: true}})}
	var out []nft.Rule
	for _, prefix := range []string{link.Prefix, formerBridge} {
		in = append(in, and(nft.Rule{nft.FromInterface{Prefix: prefix}}, nil))
		out = append(out, and(nft.Rule{nft.FromInterface{Prefix: prefix}},
			nft.Rule{nft.InSet{Set: peerSet, Key: []nft.Field{nft.Destination}}}))
	}
	return &nft.Fragment{
		Sets: map[string]nft.Set{peerSet: {Key: []nft.Field{nft.Source}}},
		Chains: map[string]nft.Chain{
			inputHook:   {Hook: &nft.Hook{Type: "filter", Name: inputHook}, Rules: in},
			forwardHook: {Hook: &nft.Hook{Type: "filter", Name: forwardHook}, Rules: out},
		},
	}
}

// apply writes the rules to the kernel.
func (f *peerFilter) apply() error {
	f.verify(true)
	var failures []error
	for _, family := range families {
		failures = append(failures, f.kernels[family].Apply(f.tables[family]))
	}
	return errors.Join(failures...)
}

// verify finds tables in the kernel that another program has changed, so that they are compared completely when they
// are next applied. It reports whether there are any. With deep, it checks every rule, otherwise only what a flush
// would remove.
func (f *peerFilter) verify(deep bool) (changed bool) {
	for _, family := range families {
		k := f.kernels[family]
		if intact, err := k.IsIntact(f.tables[family], deep); err != nil || !intact {
			k.Invalidate()
		}
		changed = changed || !k.IsApplied()
	}
	return changed
}

// restore restores the rules if another program has changed them. deep is passed to look.
func (f *peerFilter) restore(deep bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.up || !f.verify(deep) {
		return nil
	}
	if err := f.apply(); err != nil {
		return fmt.Errorf("keep others out of %s: %w", overlayName, err)
	}
	return nil
}

// remove removes the rules after the overlay was removed.
func (f *peerFilter) remove() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.up, f.tables = false, nil
	var failures []error
	for _, family := range families {
		failures = append(failures, kernel.Remove(family, peerFilterName))
	}
	return errors.Join(failures...)
}
