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
	// FromNet and To match a packet's source and destination addresses.
	FromNet struct {
		Net netip.Prefix
		Not bool
	}
	ToNet struct {
		Net netip.Prefix
		Not bool
	}
	// FromLocal and ToLocal match source and destination addresses of this machine.
	FromLocal struct{}
	ToLocal   struct{}
	// WrongInterface matches packets that arrived by an interface that does not lead back to their source address.
	WrongInterface struct{}
	// InSet matches packets whose key is in a set, or is not in it.
	InSet struct {
		Set string
		Key []Field
		Not bool
	}
	// Lookup applies the verdict that a map has for the key.
	Lookup struct {
		Map string
		Key []Field
	}
	// IsProtocol matches the transport protocol.
	IsProtocol struct{ Protocol uint8 }
	// ToPorts matches destination ports from First to Last, of the transport protocol matched by Is.
	ToPorts struct{ First, Last uint16 }
	// ICMPv6Types matches ICMPv6 message types from First to Last. It requires Is for ICMPv6.
	ICMPv6Types struct{ First, Last uint8 }
	// OnLink matches packets that no router has forwarded: their hop limit is 255. A router decrements it before its
	// forward chains.
	OnLink struct{}
	// FromInterface matches packets that arrived by an interface whose name has the prefix, or has not.
	FromInterface struct {
		Prefix string
		Not    bool
	}
	// Random goes to one of the chains with equal probability.
	Random struct{ Chains []string }
	// RandomTo translates the destination to one of several endpoints with equal probability.
	RandomTo struct{ To []netip.AddrPort }
	// StoreNumber stores the number that a map has for the key, and continues only if there is one. GotoStored goes to
	// the chain at the stored number in Chains, counted from 1, or continues if nothing is stored. ClearStored
	// clears the number.
	StoreNumber struct {
		Map string
		Key []Field
	}
	GotoStored  struct{ Chains []string }
	ClearStored struct{}
	// RandomFrom translates the destination to the endpoint that a map has for the key and a random index below Of.
	// With Of 1, the index is 0.
	RandomFrom struct {
		Map   string
		Key   []Field
		Count int
	}
	// DNAT translates the destination to an endpoint.
	DNAT struct{ To netip.AddrPort }
	// Redirect translates the destination to a port of this machine.
	Redirect struct{ Port uint16 }
	// Untranslated matches packets of connections whose destination was not translated.
	Untranslated struct{}
	// Reply matches packets to the initiator of a connection.
	Reply struct{}
	// Decide is a verdict as a statement.
	Decide struct{ Verdict }
	// AddSource adds the source address to a set with a timeout.
	AddSource struct {
		Set     string
		Timeout int32
	}
	// Mark sets bits of the packet mark. Marked matches packets that have the bits set, and clears them.
	Mark   struct{ Bits uint32 }
	Marked struct{ Bits uint32 }
	// Masquerade replaces the source address by this machine's address.
	Masquerade struct{}
	// Reject drops a packet and notifies its sender.
	Reject struct{}
	// NewConnection matches the first packet of a connection. EstablishedConnection matches packets of connections that
	// were accepted before.
	NewConnection         struct{}
	EstablishedConnection struct{}
)

func negation(isNegated bool) string {
	if isNegated {
		return "!= "
	}
	return ""
}

func formatPrefix(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// formatKey returns nft's notation of a key.
func formatKey(f Family, key []Field) string {
	words := make([]string, len(key))
	for i, k := range key {
		switch k {
		case Source:
			words[i] = f.addressWord() + " saddr"
		case Destination:
			words[i] = f.addressWord() + " daddr"
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

func (s FromNet) text(f Family) string {
	return f.addressWord() + " saddr " + negation(s.Not) + formatPrefix(s.Net)
}
func (s ToNet) text(f Family) string {
	return f.addressWord() + " daddr " + negation(s.Not) + formatPrefix(s.Net)
}
func (FromLocal) text(Family) string      { return "fib saddr type local" }
func (ToLocal) text(Family) string        { return "fib daddr type local" }
func (WrongInterface) text(Family) string { return "fib saddr . iif oif missing" }
func (s InSet) text(f Family) string {
	return formatKey(f, s.Key) + " " + negation(s.Not) + "@" + s.Set
}
func (s Lookup) text(f Family) string            { return formatKey(f, s.Key) + " vmap @" + s.Map }
func (s IsProtocol) text(Family) string          { return "meta l4proto " + protocolName(s.Protocol) }
func (s Decide) text(Family) string              { return s.Verdict.String() }
func (s Mark) text(Family) string                { return fmt.Sprintf("meta mark set meta mark or %#x", s.Bits) }
func (Masquerade) text(Family) string            { return "masquerade fully-random" }
func (NewConnection) text(Family) string         { return "ct state new" }
func (EstablishedConnection) text(Family) string { return "ct state established,related" }
func (Reject) text(Family) string                { return "reject" }
func (s Redirect) text(Family) string            { return fmt.Sprintf("redirect to :%d", s.Port) }

func (Untranslated) text(Family) string { return "ct status & dnat == 0" }

func (Reply) text(Family) string    { return "ct direction reply" }
func (s DNAT) text(f Family) string { return "dnat to " + s.To.String() }
func (s FromInterface) text(Family) string {
	return "iifname " + negation(s.Not) + `"` + s.Prefix + `*"`
}

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

func (s AddSource) text(f Family) string {
	return fmt.Sprintf("update @%s { %s saddr timeout %ds }", s.Set, f.addressWord(), s.Timeout)
}

func (s Marked) text(Family) string {
	return fmt.Sprintf("meta mark and %#x != 0 meta mark set meta mark xor %#x", s.Bits, s.Bits)
}

func (s Random) text(Family) string {
	var b strings.Builder
	fmt.Fprintf(&b, "numgen random mod %d vmap {", len(s.Chains))
	for i, c := range s.Chains {
		fmt.Fprintf(&b, "%s %d : goto %s", separator(i), i, c)
	}
	b.WriteString(" }")
	return b.String()
}

func (s RandomTo) text(Family) string {
	var b strings.Builder
	fmt.Fprintf(&b, "dnat to numgen random mod %d map {", len(s.To))
	for i, to := range s.To {
		fmt.Fprintf(&b, "%s %d : %s . %d", separator(i), i, to.Addr(), to.Port())
	}
	b.WriteString(" }")
	return b.String()
}

func (s StoreNumber) text(f Family) string {
	return "meta priority set " + formatKey(f, s.Key) + " map @" + s.Map
}

func (ClearStored) text(Family) string { return "meta priority set 0" }

func (s GotoStored) text(Family) string {
	var b strings.Builder
	b.WriteString("meta priority vmap {")
	for i, c := range s.Chains {
		fmt.Fprintf(&b, "%s %d : goto %s", separator(i), i+1, c)
	}
	b.WriteString(" }")
	return b.String()
}

func (s RandomFrom) text(f Family) string {
	return fmt.Sprintf("dnat to %s . numgen random mod %d map @%s", formatKey(f, s.Key), s.Count, s.Map)
}

func separator(at int) string {
	if at == 0 {
		return ""
	}
	return ","
}

// protocolName returns the name of a transport protocol.
func protocolName(p uint8) string {
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
