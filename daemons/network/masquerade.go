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

// tableName is the name of the tables that masquerade pods' packets to the outside, and mark packets for responses
// through the overlay.
const tableName = "clusterctl-network"

// sourceNAT is the priority of source NAT chains.
const sourceNAT = 100

// multicastNetworks holds the multicast networks. Packets to them are not masqueraded, because the responses would go
// to the machine.
var multicastNetworks = map[nft.Family]netip.Prefix{
	nft.IPv4: netip.MustParsePrefix("224.0.0.0/4"),
	nft.IPv6: netip.MustParsePrefix("ff00::/8"),
}

// masquerade maintains one table for each address family of the pods.
type masquerade struct {
	clusters []netip.Prefix
	mu       sync.Mutex
	tables   []*nft.Table
	kernels  []*kernel.Kernel
}

// newMasquerade returns rules that masquerade packets from clusters, the networks of all pods. Packets to clusters and
// to exceptions are not masqueraded.
func newMasquerade(clusters, exceptions []netip.Prefix) (*masquerade, error) {
	m := &masquerade{clusters: clusters}
	for _, family := range []nft.Family{nft.IPv4, nft.IPv6} {
		of := func(p netip.Prefix) bool { return p.Addr().Is4() == (family == nft.IPv4) }
		if !slices.ContainsFunc(clusters, of) {
			continue
		}
		var rules []nft.Rule
		for _, p := range slices.Concat([]netip.Prefix{multicastNetworks[family]}, clusters, exceptions) {
			if of(p) {
				rules = append(rules, nft.Rule{nft.ToNet{Net: p}, nft.Decide{Verdict: nft.Verdict{Action: "return"}}})
			}
		}
		for _, p := range clusters {
			if of(p) {
				rules = append(rules, nft.Rule{nft.FromNet{Net: p}, nft.Masquerade{}})
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

// setAnswerMarks adds or removes the rules that mark packets between callers and pods for the overlay, and updates the
// kernel. Without callers there are no such rules, because every packet would pass them.
func (m *masquerade) setAnswerMarks(callers bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tables {
		var f *nft.Fragment
		if callers {
			f = &nft.Fragment{
				Chains: map[string]nft.Chain{
					"prerouting": returnMarkChain(slices.DeleteFunc(slices.Clone(m.clusters),
						func(p netip.Prefix) bool {
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

// apply writes the rules to the kernel. The caller holds mu.
func (m *masquerade) apply() error {
	var failures []error
	for i, t := range m.tables {
		if err := m.kernels[i].Apply(t); err != nil {
			failures = append(failures, fmt.Errorf("set up masquerading: %w", err))
		}
	}
	return errors.Join(failures...)
}

// isIntact reports whether the kernel has the rules. With deep, it checks every rule, otherwise only what a flush would
// remove.
func (m *masquerade) isIntact(deep bool) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, t := range m.tables {
		if intact, err := m.kernels[i].IsIntact(t, deep); err != nil || !intact {
			if err != nil {
				err = fmt.Errorf("read masquerading: %w", err)
			}
			return false, err
		}
	}
	return true, nil
}

// restore writes rules again that another program has removed.
func (m *masquerade) restore() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.kernels {
		k.Invalidate()
	}
	return m.apply()
}
