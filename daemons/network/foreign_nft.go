package network

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"clusterctl/daemons/network/link"
)

// ownTables are how the names of tables begin that the cluster's daemons keep.
var ownTables = []string{"clusterctl-", "kube-proxy", "cni_hostport"}

// familyNames are what nft calls the families whose tables see packets that a machine forwards.
var familyNames = map[nftables.TableFamily]string{nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyINet: "inet"}

// newer looks at the chains of nftables that see packets which the machine forwards. That of iptables is given an
// accept; what drops packets of pods in others is found.
func (f *foreign) newer() (problems []string, err error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("reach nftables: %w", err)
	}
	chains, err := conn.ListChains()
	if err != nil {
		return nil, fmt.Errorf("list nftables' chains: %w", err)
	}
	for _, c := range chains {
		family, forwards := familyNames[c.Table.Family]
		if !forwards || c.Hooknum == nil || *c.Hooknum != *nftables.ChainHookForward ||
			slices.ContainsFunc(ownTables, func(own string) bool { return strings.HasPrefix(c.Table.Name, own) }) {
			continue
		}
		name := fmt.Sprintf("the chain %s %s %s", family, c.Table.Name, c.Name)
		if i := slices.IndexFunc(protocols, func(p protocolOf) bool { return p.family == c.Table.Family }); i >= 0 && c.Table.Name == "filter" && c.Name == "FORWARD" {
			found, err := f.acceptNewer(protocols[i], name)
			if err != nil {
				return problems, err
			}
			problems = append(problems, found...)
			continue
		}
		rules, err := conn.GetRules(c.Table, c)
		if err != nil {
			return problems, fmt.Errorf("list the rules of %s: %w", name, err)
		}
		problems = append(problems, f.drops(c, name, rules)...)
	}
	return problems, nil
}

// acceptNewer has iptables accept pods' packets in a chain that it keeps in nftables.
func (f *foreign) acceptNewer(p protocolOf, name string) ([]string, error) {
	if !slices.ContainsFunc(f.clusters, func(c netip.Prefix) bool { return c.Addr().Is4() == p.is4 }) {
		return nil, nil
	}
	for _, suffix := range []string{"-nft", ""} {
		version, err := f.run(nil, p.program+suffix, "-V")
		if err == nil && bytes.Contains(version, []byte("nf_tables")) {
			return f.accept(p, p.program, suffix, name)
		}
	}
	return []string{name + " is of iptables, and the machine has no program for it: install iptables, or delete the table"}, nil
}

// drops finds what drops packets of pods in a chain: the chain's policy, where no rule accepts them before, or a rule
// for all packets.
func (f *foreign) drops(c *nftables.Chain, name string, rules []*nftables.Rule) []string {
	var problems []string
	for _, cluster := range f.clusters {
		if c.Table.Family != nftables.TableFamilyINet && cluster.Addr().Is4() != (c.Table.Family == nftables.TableFamilyIPv4) {
			continue
		}
		from, to, dropped := false, false, ""
		for i, r := range rules {
			switch verdict, every := verdictOf(r.Exprs); {
			case verdict == expr.VerdictAccept && every:
				from, to = true, true
			case verdict == expr.VerdictAccept:
				of, towards := accepts(r.Exprs, cluster)
				from, to = from || of, to || towards
			case verdict == expr.VerdictDrop && every:
				dropped = fmt.Sprintf("rule %d of %s drops all packets", i+1, name)
			}
			if dropped != "" || from && to {
				break
			}
		}
		if dropped == "" && c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop {
			dropped = name + " drops what none of its rules accepts"
		}
		if dropped != "" && !(from && to) {
			word := "ip"
			if cluster.Addr().Is6() {
				word = "ip6"
			}
			problems = append(problems, fmt.Sprintf("%s, and that is what pods of %s send and get: add the rules \"%s saddr %s accept\" and \"%s daddr %s accept\" to it", dropped, cluster, word, cluster, word, cluster))
		}
	}
	return problems
}

// verdictOf returns what becomes of packets that a rule matches, 0 when it decides nothing, and whether it matches all
// of them.
func verdictOf(exprs []expr.Any) (verdict expr.VerdictKind, every bool) {
	every = true
	for _, e := range exprs {
		switch e := e.(type) {
		case *expr.Verdict:
			verdict = e.Kind
		case *expr.Reject:
			verdict = expr.VerdictDrop
		case *expr.Counter, *expr.Log:
		default:
			every = false
		}
	}
	switch verdict {
	case expr.VerdictAccept, expr.VerdictDrop:
		return verdict, every
	}
	return 0, false
}

// accepts reports whether a rule that accepts matches packets from pods, and to pods: by their network, or by how their
// interfaces' names begin.
func accepts(exprs []expr.Any, cluster netip.Prefix) (from, to bool) {
	source, destination := uint32(12), uint32(16)
	if cluster.Addr().Is6() {
		source, destination = 8, 24
	}
	network := cluster.Masked().Addr().AsSlice()
	var payload *expr.Payload
	var meta *expr.Meta
	for _, e := range exprs {
		switch e := e.(type) {
		case *expr.Payload:
			payload, meta = e, nil
		case *expr.Meta:
			payload, meta = nil, e
		case *expr.Cmp:
			switch {
			case e.Op != expr.CmpOpEq:
			case payload != nil && payload.Base == expr.PayloadBaseNetworkHeader && len(e.Data)*8 >= cluster.Bits() && len(e.Data) <= len(network) && bytes.Equal(e.Data, network[:len(e.Data)]):
				from, to = from || payload.Offset == source, to || payload.Offset == destination
			case meta != nil && bytes.HasPrefix(e.Data, []byte(link.Prefix)):
				from, to = from || meta.Key == expr.MetaKeyIIFNAME, to || meta.Key == expr.MetaKeyOIFNAME
			}
		}
	}
	return from, to
}
