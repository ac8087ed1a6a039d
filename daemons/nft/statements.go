package nft

import (
	"fmt"
	"net/netip"
	"strings"
)

// Stmt is one statement of a rule, one of the types below.
type Stmt interface{ text(Family) string }

// Verdict is what happens next.
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
	// Astray matches packets whose sender is not reached by the interface that they came in by.
	Astray struct{}
	// In matches packets whose key is in a set, or is not.
	In struct {
		Set string
		Key []Field
		Not bool
	}
	// Lookup follows a map of verdicts.
	Lookup struct {
		Map string
		Key []Field
	}
	// Is matches the transport protocol.
	Is struct{ Protocol uint8 }
	// ToPorts matches destination ports of the transport protocol that Is has matched, from First to Last.
	ToPorts struct{ First, Last uint16 }
	// ICMPv6Types matches messages of ICMPv6, which Is has matched, from First to Last.
	ICMPv6Types struct{ First, Last uint8 }
	// OnLink matches packets that no router has forwarded: their hop limit is 255, and a router decrements it before
	// its forward chains.
	OnLink struct{}
	// Through matches packets that came in by an interface whose name begins so, or did not.
	Through struct {
		Prefix string
		Not    bool
	}
	// Random goes to one of the chains, each as likely as the others.
	Random struct{ Chains []string }
	// RandomTo sends a packet to one of several endpoints, each as likely as the others.
	RandomTo struct{ To []netip.AddrPort }
	// Note notes the number that a map has for the key, and goes on only when it has one. ByNote goes to the chain
	// whose place in Chains, from 1 on, is the number noted, or goes on when none is. Unnote forgets it.
	Note struct {
		Map string
		Key []Field
	}
	ByNote struct{ Chains []string }
	Unnote struct{}
	// RandomOf sends a packet to the endpoint that a map has for the key and a number below Of, each as likely as the
	// others. With Of 1 that is the number 0.
	RandomOf struct {
		Map string
		Key []Field
		Of  int
	}
	// DNAT sends a packet to an endpoint.
	DNAT struct{ To netip.AddrPort }
	// Redirect sends a packet to a port of this machine.
	Redirect struct{ Port uint16 }
	// Untranslated matches packets of connections that lead where their sender meant them to.
	Untranslated struct{}
	// Reply matches packets that go to who opened their connection.
	Reply struct{}
	// Do is a verdict by itself.
	Do struct{ Verdict }
	// Remember puts the source address into a set that forgets.
	Remember struct {
		Set     string
		Seconds int32
	}
	// Mark sets bits of a packet's mark. Marked matches packets that have them, and clears them.
	Mark   struct{ Bits uint32 }
	Marked struct{ Bits uint32 }
	// Masquerade gives a packet this machine's address.
	Masquerade struct{}
	// Reject refuses a packet and says so to its sender.
	Reject struct{}
	// First matches the first packet of a connection, Known those of connections that were let through before.
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

// fields is a key as nft writes it.
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

// protocol is a transport protocol's name.
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
