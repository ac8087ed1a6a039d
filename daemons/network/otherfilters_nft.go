package network

import (
	"bytes"
	"fmt"
	bitcount "math/bits"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"clusterctl/daemons/network/link"
)

// ownTables are the name prefixes of the tables that the cluster's daemons maintain.
var ownTables = []string{"clusterctl-", "kube-proxy", "cni_hostport"}

// familyNames are nft's names of the table families that see forwarded packets.
var familyNames = map[nftables.TableFamily]string{nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6",
	nftables.TableFamilyINet: "inet"}

// checkNFTables checks the nftables chains with the hook forward. It adds an accept to the chains of iptables. It
// returns the rules in other chains that drop packets of pods.
func (f *otherFilters) checkNFTables() (problems []string, err error) {
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
		if i := slices.IndexFunc(protocols,
			func(p familyProtocol) bool { return p.family == c.Table.Family }); i >= 0 &&
			c.Table.Name == "filter" && c.Name == "FORWARD" {
			found, err := f.acceptNFTables(protocols[i], name)
			if err != nil {
				return problems, err
			}
			problems = append(problems, found...)
			continue
		}
		found, err := f.findDrops(c, name, func(chain string) ([]*nftables.Rule, error) {
			return conn.GetRules(c.Table, &nftables.Chain{Name: chain, Table: c.Table})
		})
		if err != nil {
			return problems, fmt.Errorf("list the rules of %s: %w", name, err)
		}
		problems = append(problems, found...)
	}
	return problems, nil
}

// acceptNFTables makes iptables accept packets of pods in a chain that iptables maintains in nftables.
func (f *otherFilters) acceptNFTables(p familyProtocol, name string) ([]string, error) {
	if !slices.ContainsFunc(f.clusters, func(c netip.Prefix) bool { return c.Addr().Is4() == p.is4 }) {
		return nil, nil
	}
	for _, suffix := range []string{"-nft", ""} {
		version, err := f.runProgram(nil, p.program+suffix, "-V")
		if err == nil && bytes.Contains(version, []byte("nf_tables")) {
			return f.acceptIPTables(p, p.program, suffix, name)
		}
	}
	return []string{name + " belongs to iptables, but the machine has no iptables program: install iptables, " +
		"or delete the table"}, nil
}

// findDrops returns what drops packets of pods in a chain: a rule that matches all packets, or the chain's policy. Both
// are ignored if an earlier rule accepts the packets.
func (f *otherFilters) findDrops(c *nftables.Chain, name string,
	list func(chain string) ([]*nftables.Rule, error)) (problems []string, err error) {
	// List the rules of a chain once, even if several rules lead to it.
	listed := map[string][]*nftables.Rule{}
	rules := func(chain string) ([]*nftables.Rule, error) {
		if list, ok := listed[chain]; ok {
			return list, nil
		}
		list, err := list(chain)
		listed[chain] = list
		return list, err
	}
	for _, cluster := range f.clusters {
		if c.Table.Family != nftables.TableFamilyINet &&
			cluster.Addr().Is4() != (c.Table.Family == nftables.TableFamilyIPv4) {
			continue
		}
		w := &chainWalk{cluster: cluster, rules: rules, rulesLeft: maxRules}
		if err := w.walkChain(c.Name, nil, true, 0); err != nil {
			return problems, err
		}
		dropped := ""
		if w.dropped.rule > 0 {
			dropped = fmt.Sprintf("rule %d of the chain %s, which %s leads to, drops all packets", w.dropped.rule,
				w.dropped.chain, name)
			if w.dropped.chain == c.Name {
				dropped = fmt.Sprintf("rule %d of %s drops all packets", w.dropped.rule, name)
			}
		} else if c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop {
			dropped = name + " drops what none of its rules accepts"
		}
		if dropped == "" || w.from && w.to {
			continue
		}
		word := "ip"
		if cluster.Addr().Is6() {
			word = "ip6"
		}
		problems = append(problems, fmt.Sprintf("%s, including those from and to pods in %s: add the rules "+
			"\"%s saddr %s accept\" and \"%s daddr %s accept\" to it", dropped, cluster, word, cluster, word, cluster))
	}
	return problems, nil
}

const (
	// maxRules limits the rules that are read for one chain and the chains it leads to. Chains with more rules are not
	// reported.
	maxRules = 10000
	// maxJumps limits the depth of jumps between chains (NFT_JUMP_STACK_SIZE in Linux).
	maxJumps = 16
)

// chainWalk follows packets of pods through a chain and the chains it leads to. An accept of some of these packets
// counts as an accept of all, so that only certain drops are reported.
type chainWalk struct {
	cluster   netip.Prefix
	rules     func(chain string) ([]*nftables.Rule, error)
	rulesLeft int

	from, to bool // packets from pods, and to pods, are accepted
	dropped  struct {
		chain string
		rule  int // from 1; 0 when no rule drops all packets
	}
}

// walkChain follows packets through a chain. path holds the conditions of the rules that jump to the chain. every
// reports whether all packets reach the chain.
func (w *chainWalk) walkChain(name string, path []expr.Any, every bool, depth int) error {
	rules, err := w.rules(name)
	if err != nil {
		return err
	}
	for i, r := range rules {
		if w.rulesLeft--; w.rulesLeft < 0 || depth > maxJumps {
			w.from, w.to = true, true
		}
		if w.dropped.rule > 0 || w.from && w.to {
			return nil
		}
		verdict, all := verdictOf(r.Exprs)
		all = all && every
		where := slices.Concat(path, r.Exprs)
		switch {
		case verdict == nil:
		case verdict.Kind == expr.VerdictAccept && all:
			w.from, w.to = true, true
		case verdict.Kind == expr.VerdictAccept:
			from, to := acceptedDirections(where, w.cluster)
			w.from, w.to = w.from || from, w.to || to
		case verdict.Kind == expr.VerdictDrop && all:
			w.dropped.chain, w.dropped.rule = name, i+1
		case verdict.Kind == expr.VerdictJump, verdict.Kind == expr.VerdictGoto:
			if err := w.walkChain(verdict.Chain, where, all, depth+1); err != nil {
				return err
			}
			if verdict.Kind == expr.VerdictGoto && all {
				return nil
			}
		case verdict.Kind == expr.VerdictReturn && all:
			return nil
		}
	}
	return nil
}

// verdictOf returns the verdict of a rule, or nil if it has none, and whether the rule matches all packets.
func verdictOf(exprs []expr.Any) (verdict *expr.Verdict, every bool) {
	every = true
	for _, e := range exprs {
		switch e := e.(type) {
		case *expr.Verdict:
			verdict = e
		case *expr.Reject:
			verdict = &expr.Verdict{Kind: expr.VerdictDrop}
		case *expr.Counter, *expr.Log:
		default:
			every = false
		}
	}
	return verdict, every
}

// acceptedDirections reports whether an accepting rule matches packets from pods and packets to pods: by a network that
// overlaps the cluster's, or by the prefix of interface names. Sets and ranges are assumed to match.
func acceptedDirections(exprs []expr.Any, cluster netip.Prefix) (from, to bool) {
	source, destination := uint32(12), uint32(16)
	if cluster.Addr().Is6() {
		source, destination = 8, 24
	}
	var payload *expr.Payload
	var meta *expr.Meta
	var mask []byte
	matches := func() {
		if payload != nil && payload.Base == expr.PayloadBaseNetworkHeader {
			from, to = from || payload.Offset == source, to || payload.Offset == destination
		}
		if meta != nil {
			from, to = from || meta.Key == expr.MetaKeyIIFNAME, to || meta.Key == expr.MetaKeyOIFNAME
		}
	}
	for _, e := range exprs {
		switch e := e.(type) {
		case *expr.Payload:
			payload, meta, mask = e, nil, nil
		case *expr.Meta:
			payload, meta, mask = nil, e, nil
		case *expr.Ct:
			payload, meta, mask = nil, nil, nil
		case *expr.Bitwise:
			mask = e.Mask
		case *expr.Cmp:
			if e.Op == expr.CmpOpEq && (payload != nil && comparedNetwork(e.Data, mask, cluster).Overlaps(cluster) ||
				meta != nil && bytes.HasPrefix(e.Data, []byte(link.Prefix))) {
				matches()
			}
		case *expr.Lookup:
			if !e.Invert {
				matches()
			}
		case *expr.Range:
			if e.Op == expr.CmpOpEq {
				matches()
			}
		}
	}
	return from, to
}

// comparedNetwork returns the network that a comparison of the first bytes of an address matches. mask is the mask
// applied before the comparison, or nil. The result is invalid if the comparison is not for the cluster's address
// family.
func comparedNetwork(first, mask []byte, cluster netip.Prefix) netip.Prefix {
	bits := len(first) * 8
	if mask != nil {
		bits = 0
		for _, b := range mask {
			bits += bitcount.OnesCount8(b)
		}
	}
	address := make([]byte, len(cluster.Addr().AsSlice()))
	if len(first) > len(address) || bits > len(address)*8 {
		return netip.Prefix{}
	}
	copy(address, first)
	parsed, _ := netip.AddrFromSlice(address)
	return netip.PrefixFrom(parsed, bits)
}
