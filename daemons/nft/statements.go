package nft

import (
	"fmt"
	"net/netip"
	"strings"
)

// Stmt is a statement of a rule: one of the types below.
type Stmt interface{ text(Family) string }

// Verdict decides what happens to a packet next.
type Verdict struct {
	Action string // goto, jump, accept, drop, return
	Chain  string
}

func (v Verdict) String() string {
	if v.Chain == "" {
		return v.Action
	}
	return v.Action + " " + v.Chain
}

// These are the statements.
type (
	// From and To match a packet's source and destination addresses.
	From struct {
		Net netip.Prefix
		Not bool
	}
	To struct {
		Net netip.Prefix
		Not bool
	}
	// FromLocal and ToLocal match source and destination addresses of this machine.
	FromLocal struct{}
	ToLocal   struct{}
	// Astray matches packets that arrived by an interface that does not lead back to their source address.
	Astray struct{}
	// In matches packets whose key is in a set, or is not in it.
	In struct {
		Set string
		Key []Field
		Not bool
	}
	// Lookup applies the verdict that a map has for the key.
	Lookup struct {
		Map string
		Key []Field
	}
	// Is matches the transport protocol.
	Is struct{ Protocol uint8 }
	// ToPorts matches destination ports from First to Last, of the transport protocol matched by Is.
	ToPorts struct{ First, Last uint16 }
	// ICMPv6Types matches ICMPv6 message types from First to Last. It requires Is for ICMPv6.
	ICMPv6Types struct{ First, Last uint8 }
	// OnLink matches packets that no router has forwarded: their hop limit is 255. A router decrements it before its
	// forward chains.
	OnLink struct{}
	// Through matches packets that arrived by an interface whose name has the prefix, or has not.
	Through struct {
		Prefix string
		Not    bool
	}
	// Random goes to one of the chains with equal probability.
	Random struct{ Chains []string }
	// RandomTo translates the destination to one of several endpoints with equal probability.
	RandomTo struct{ To []netip.AddrPort }
	// Note stores the number that a map has for the key, and continues only if there is one. ByNote goes to the chain
	// at the stored number in Chains, counted from 1, or continues if nothing is stored. Unnote clears the number.
	Note struct {
		Map string
		Key []Field
	}
	ByNote struct{ Chains []string }
	Unnote struct{}
	// RandomOf translates the destination to the endpoint that a map has for the key and a random index below Of. With
	// Of 1, the index is 0.
	RandomOf struct {
		Map string
		Key []Field
		Of  int
	}
	// DNAT translates the destination to an endpoint.
	DNAT struct{ To netip.AddrPort }
	// Redirect translates the destination to a port of this machine.
	Redirect struct{ Port uint16 }
	// Untranslated matches packets of connections whose destination was not translated.
	Untranslated struct{}
	// Reply matches packets to the initiator of a connection.
	Reply struct{}
	// Do is a verdict as a statement.
	Do struct{ Verdict }
	// Remember adds the source address to a set with a timeout.
	Remember struct {
		Set     string
		Seconds int32
	}
	// Mark sets bits of the packet mark. Marked matches packets that have the bits set, and clears them.
	Mark   struct{ Bits uint32 }
	Marked struct{ Bits uint32 }
	// Masquerade replaces the source address by this machine's address.
	Masquerade struct{}
	// Reject drops a packet and notifies its sender.
	Reject struct{}
	// First matches the first packet of a connection. Known matches packets of connections that were accepted before.
	First struct{}
	Known struct{}
)

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

// fields returns nft's notation of a key.
func fields(f Family, key []Field) string {
	words := make([]string, len(key))
	for i, k := range key {
		switch k {
		case Source:
			words[i] = f.word() + " saddr"
		case Destination:
			words[i] = f.word() + " daddr"
		case Protocol:
			words[i] = "meta l4proto"
		case Port:
			words[i] = "th dport"
		case Index:
			words[i] = "index"
		}
	}
	return strings.Join(words, " . ")
}

func (s From) text(f Family) string   { return f.word() + " saddr " + not(s.Not) + prefix(s.Net) }
func (s To) text(f Family) string     { return f.word() + " daddr " + not(s.Not) + prefix(s.Net) }
func (FromLocal) text(Family) string  { return "fib saddr type local" }
func (ToLocal) text(Family) string    { return "fib daddr type local" }
func (Astray) text(Family) string     { return "fib saddr . iif oif missing" }
func (s In) text(f Family) string     { return fields(f, s.Key) + " " + not(s.Not) + "@" + s.Set }
func (s Lookup) text(f Family) string { return fields(f, s.Key) + " vmap @" + s.Map }
func (s Is) text(Family) string       { return "meta l4proto " + protocol(s.Protocol) }
func (s Do) text(Family) string       { return s.Verdict.String() }
func (s Mark) text(Family) string     { return fmt.Sprintf("meta mark set meta mark or %#x", s.Bits) }
func (Masquerade) text(Family) string { return "masquerade fully-random" }
func (First) text(Family) string      { return "ct state new" }
func (Known) text(Family) string      { return "ct state established,related" }
func (Reject) text(Family) string     { return "reject" }
func (s Redirect) text(Family) string { return fmt.Sprintf("redirect to :%d", s.Port) }

func (Untranslated) text(Family) string { return "ct status & dnat == 0" }

func (Reply) text(Family) string     { return "ct direction reply" }
func (s DNAT) text(f Family) string  { return "dnat to " + s.To.String() }
func (s Through) text(Family) string { return "iifname " + not(s.Not) + `"` + s.Prefix + `*"` }

func (s ToPorts) text(Family) string {
	if s.First == s.Last {
		return fmt.Sprintf("th dport %d", s.First)
	}
	return fmt.Sprintf("th dport %d-%d", s.First, s.Last)
}

func (s ICMPv6Types) text(Family) string {
	return fmt.Sprintf("icmpv6 type %d-%d", s.First, s.Last)
}

func (OnLink) text(f Family) string {
	if f == IPv4 {
		return "ip ttl 255"
	}
	return "ip6 hoplimit 255"
}

func (s Remember) text(f Family) string {
	return fmt.Sprintf("update @%s { %s saddr timeout %ds }", s.Set, f.word(), s.Seconds)
}

func (s Marked) text(Family) string {
	return fmt.Sprintf("meta mark and %#x != 0 meta mark set meta mark xor %#x", s.Bits, s.Bits)
}

func (s Random) text(Family) string {
	var b strings.Builder
	fmt.Fprintf(&b, "numgen random mod %d vmap {", len(s.Chains))
	for i, c := range s.Chains {
		fmt.Fprintf(&b, "%s %d : goto %s", comma(i), i, c)
	}
	b.WriteString(" }")
	return b.String()
}

func (s RandomTo) text(Family) string {
	var b strings.Builder
	fmt.Fprintf(&b, "dnat to numgen random mod %d map {", len(s.To))
	for i, to := range s.To {
		fmt.Fprintf(&b, "%s %d : %s . %d", comma(i), i, to.Addr(), to.Port())
	}
	b.WriteString(" }")
	return b.String()
}

func (s Note) text(f Family) string {
	return "meta priority set " + fields(f, s.Key) + " map @" + s.Map
}

func (Unnote) text(Family) string { return "meta priority set 0" }

func (s ByNote) text(Family) string {
	var b strings.Builder
	b.WriteString("meta priority vmap {")
	for i, c := range s.Chains {
		fmt.Fprintf(&b, "%s %d : goto %s", comma(i), i+1, c)
	}
	b.WriteString(" }")
	return b.String()
}

func (s RandomOf) text(f Family) string {
	return fmt.Sprintf("dnat to %s . numgen random mod %d map @%s", fields(f, s.Key), s.Of, s.Map)
}

func comma(at int) string {
	if at == 0 {
		return ""
	}
	return ","
}

// protocol returns the name of a transport protocol.
func protocol(p uint8) string {
	switch p {
	case ICMP:
		return "icmp"
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case ICMPv6:
		return "ipv6-icmp"
	case SCTP:
		return "sctp"
	}
	return fmt.Sprint(p)
}

func (r Rule) text(f Family) string {
	words := make([]string, len(r))
	for i, s := range r {
		words[i] = s.text(f)
	}
	return strings.Join(words, " ")
}
