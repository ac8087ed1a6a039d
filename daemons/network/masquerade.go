package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"clusterctl/daemons/nft"
	"clusterctl/daemons/nft/kernel"
)

// tableName is the name of the tables that have pods' packets to the outside leave under the node's address, and mark
// what is answered through the overlay.
const tableName = "clusterctl-network"

// sourceNAT is the priority of what changes packets' senders.
const sourceNAT = 100

// everybody are the addresses of groups of receivers. What is sent to them is not masqueraded: groups of machines would
// get the answer to themselves.
var everybody = map[nft.Family]netip.Prefix{
	nft.IPv4: netip.MustParsePrefix("224.0.0.0/4"),
	nft.IPv6: netip.MustParsePrefix("ff00::/8"),
}

// masquerade keeps one table for each family that pods have addresses of.
type masquerade struct {
	clusters []netip.Prefix
	mu       sync.Mutex
	tables   []*nft.Table
	kernels  []*kernel.Kernel
}

// newMasquerade masquerades what pods send from clusters, the networks of all pods, to anywhere but there and the
// exceptions.
func newMasquerade(clusters, exceptions []netip.Prefix) (*masquerade, error) {
	m := &masquerade{clusters: clusters}
	for _, family := range []nft.Family{nft.IPv4, nft.IPv6} {
		of := func(p netip.Prefix) bool { return p.Addr().Is4() == (family == nft.IPv4) }
		if !slices.ContainsFunc(clusters, of) {
			continue
		}
		var rules []nft.Rule
		for _, p := range slices.Concat([]netip.Prefix{everybody[family]}, clusters, exceptions) {
			if of(p) {
				rules = append(rules, nft.Rule{nft.To{Net: p}, nft.Do{Verdict: nft.Verdict{Action: "return"}}})
			}
		}
		for _, p := range clusters {
			if of(p) {
				rules = append(rules, nft.Rule{nft.From{Net: p}, nft.Masquerade{}})
			}
		}
		t, err := nft.NewTable(family, tableName, &nft.Fragment{Chains: map[string]nft.Chain{
			"postrouting": {Hook: &nft.Hook{Type: "nat", Name: "postrouting", Priority: sourceNAT}, Rules: rules},
		}})
		if err != nil {
			return nil, fmt.Errorf("set up masquerading: %w", err)
		}
		m.tables, m.kernels = append(m.tables, t), append(m.kernels, &kernel.Kernel{})
	}
	return m, nil
}

// answer has the rules mark what callers and pods say to each other through the overlay, and makes the kernel's what
// they should be. Without such callers nothing is marked: every packet would pass these rules.
func (m *masquerade) answer(callers bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tables {
		var f *nft.Fragment
		if callers {
			f = &nft.Fragment{
				Chains: map[string]nft.Chain{
					"prerouting": answersChain(slices.DeleteFunc(slices.Clone(m.clusters), func(p netip.Prefix) bool {
						return p.Addr().Is4() != (t.Family == nft.IPv4)
					})),
				},
			}
		}
		if err := t.Put("answers", f); err != nil {
			return err
		}
	}
	return m.apply()
}

// apply makes the kernel's rules what they should be. The caller holds mu.
func (m *masquerade) apply() error {
	var failures []error
	for i, t := range m.tables {
		if err := m.kernels[i].Apply(t); err != nil {
			failures = append(failures, fmt.Errorf("set up masquerading: %w", err))
		}
	}
	return errors.Join(failures...)
}

// intact reports whether the kernel has them. With deep every rule is looked at, else what a flush would have taken.
func (m *masquerade) intact(deep bool) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, t := range m.tables {
		if is, err := m.kernels[i].Intact(t, deep); err != nil || !is {
			if err != nil {
				err = fmt.Errorf("look at masquerading: %w", err)
			}
			return false, err
		}
	}
	return true, nil
}

// restore puts back what somebody has removed.
func (m *masquerade) restore() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.kernels {
		k.Forget()
	}
	return m.apply()
}
