// Package rules works out, from services and endpoints, the packet rules of one
// machine. Everything in it is a plain value; package nft puts them into the kernel.
// Text renders them as nft would list them, which is what people and golden tests read.
package rules

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Table is a whole set of rules.
type Table struct {
	Chains map[string]Chain
	Maps   map[string]Map
	Sets   map[string]Set
}

// Hook is where the kernel enters a base chain.
type Hook struct {
	Type     string // nat or filter
	Name     string // prerouting, output, postrouting
	Priority int32
}

// Chain is a list of rules.
type Chain struct {
	Hook  *Hook // nil for a chain that others jump to
	Rules []Rule
}

// Rule is a list of statements, of which each goes on to the next or ends.
type Rule []Stmt

// Stmt is one statement of a rule, one of the types below.
type Stmt interface{ fmt.Stringer }

// Key says what of a packet a map is looked up by.
type Key int

// The two kinds of key.
const (
	AddrProtoPort Key = iota // destination address, protocol, destination port
	ProtoPort                // protocol, destination port
)

// Map leads from what a packet is for to a chain.
type Map struct {
	Key      Key
	Elements map[Dest]Verdict
}

// Set holds source addresses that were seen, for a time.
type Set struct{ Seconds int32 }

// Dest is a destination: a key of a Map. Addr is not valid under ProtoPort.
type Dest struct {
	Addr  netip.Addr
	Proto uint8 // IPPROTO_TCP, _UDP or _SCTP
	Port  uint16
}

// Verdict is what happens next.
type Verdict struct {
	Action string // goto, jump, drop
	Chain  string
}

func (v Verdict) String() string {
	if v.Chain == "" {
		return v.Action
	}
	return v.Action + " " + v.Chain
}

// The statements.
type (
	// From and To match a packet's addresses.
	From struct {
		Net netip.Prefix
		Not bool
	}
	To struct {
		Net netip.Prefix
		Not bool
	}
	// FromLocal and ToLocal match addresses of this machine.
	FromLocal struct{}
	ToLocal   struct{}
	// FromSeen matches source addresses in a Set.
	FromSeen struct{ Set string }
	// Protocol matches the transport protocol.
	Protocol struct{ Proto uint8 }
	// Lookup follows a Map.
	Lookup struct {
		Map string
		Key Key
	}
	// Random goes to one of the chains, each as likely as the others.
	Random struct{ Chains []string }
	// Do is a verdict by itself.
	Do struct{ Verdict }
	// Remember puts the source address into a Set.
	Remember struct {
		Set     string
		Seconds int32
	}
	// Mark marks a packet to be masqueraded, Marked matches and clears that.
	Mark   struct{}
	Marked struct{}
	// Masquerade gives a packet this machine's address.
	Masquerade struct{}
	// DNAT sends a packet to an endpoint.
	DNAT struct {
		Proto uint8
		To    netip.AddrPort
	}
	// Reject refuses a packet and says so to its sender.
	Reject struct{}
	// New matches the first packet of a connection.
	New struct{}
)

// MarkBit is the bit of a packet's mark that Mark sets: upstream's.
const MarkBit = 0x4000

func not(is bool) string {
	if is {
		return "!= "
	}
	return ""
}

func prefix(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

func (s From) String() string     { return "ip saddr " + not(s.Not) + prefix(s.Net) }
func (s To) String() string       { return "ip daddr " + not(s.Not) + prefix(s.Net) }
func (FromLocal) String() string  { return "fib saddr type local" }
func (ToLocal) String() string    { return "fib daddr type local" }
func (s FromSeen) String() string { return "ip saddr @" + s.Set }
func (s Protocol) String() string { return "meta l4proto " + protocol(s.Proto) }
func (s Do) String() string       { return s.Verdict.String() }
func (s Remember) String() string {
	return fmt.Sprintf("update @%s { ip saddr timeout %ds }", s.Set, s.Seconds)
}
func (Mark) String() string       { return fmt.Sprintf("meta mark set meta mark or %#x", MarkBit) }
func (Masquerade) String() string { return "masquerade fully-random" }
func (New) String() string        { return "ct state new" }
func (Reject) String() string     { return "reject" }
func (s DNAT) String() string {
	return "meta l4proto " + protocol(s.Proto) + " dnat to " + s.To.String()
}
func (Marked) String() string {
	return fmt.Sprintf("meta mark and %#x != 0 meta mark set meta mark xor %#x", MarkBit, MarkBit)
}

func (s Lookup) String() string {
	if s.Key == ProtoPort {
		return "meta l4proto . th dport vmap @" + s.Map
	}
	return "ip daddr . meta l4proto . th dport vmap @" + s.Map
}

func (s Random) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "numgen random mod %d vmap {", len(s.Chains))
	for i, c := range s.Chains {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, " %d : goto %s", i, c)
	}
	b.WriteString(" }")
	return b.String()
}

func protocol(p uint8) string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return fmt.Sprint(p)
}

func (r Rule) String() string {
	words := make([]string, len(r))
	for i, s := range r {
		words[i] = s.String()
	}
	return strings.Join(words, " ")
}

func (d Dest) String() string {
	if !d.Addr.IsValid() {
		return fmt.Sprintf("%s . %d", protocol(d.Proto), d.Port)
	}
	return fmt.Sprintf("%s . %s . %d", d.Addr, protocol(d.Proto), d.Port)
}

func compare(a, b Dest) int {
	if c := a.Addr.Compare(b.Addr); c != 0 {
		return c
	}
	if a.Proto != b.Proto {
		return int(a.Proto) - int(b.Proto)
	}
	return int(a.Port) - int(b.Port)
}

// Text renders a table in a fixed order.
func (t *Table) Text() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(t.Maps)) {
		fmt.Fprintf(&b, "map %s {\n", name)
		for _, d := range slices.SortedFunc(maps.Keys(t.Maps[name].Elements), compare) {
			fmt.Fprintf(&b, "  %s : %s\n", d, t.Maps[name].Elements[d])
		}
		b.WriteString("}\n")
	}
	for _, name := range slices.Sorted(maps.Keys(t.Sets)) {
		fmt.Fprintf(&b, "set %s { timeout %ds }\n", name, t.Sets[name].Seconds)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Chains)) {
		c := t.Chains[name]
		fmt.Fprintf(&b, "chain %s {", name)
		if c.Hook != nil {
			fmt.Fprintf(&b, " type %s hook %s priority %d", c.Hook.Type, c.Hook.Name, c.Hook.Priority)
		}
		b.WriteString("\n")
		for _, r := range c.Rules {
			fmt.Fprintf(&b, "  %s\n", r)
		}
		b.WriteString("}\n")
	}
	return b.String()
}
