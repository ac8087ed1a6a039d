// Package nft is packet rules as plain values. A Table has what is always there (its hooks and what is shared) and
// fragments: what one service, one policy or one set of addresses needs. Fragments are put and taken away one by one,
// and what that changes is all that is put into the kernel, so that a change costs what it concerns. Text shows a table
// as nft would list it, which is what people and golden tests read. Package nft/kernel speaks to the kernel; what the
// rules mean is each user's own.
package nft

import "net/netip"

// Family is what packets a table sees.
type Family uint8

// The families, by the kernel's numbers.
const (
	IPv4 Family = 2
	IPv6 Family = 10
)

// word is how addresses of a family are called in rules.
func (f Family) word() string {
	if f == IPv6 {
		return "ip6"
	}
	return "ip"
}

func (f Family) String() string { return f.word() }

// Protocol numbers.
const (
	ICMP   uint8 = 1
	TCP    uint8 = 6
	UDP    uint8 = 17
	ICMPv6 uint8 = 58
	SCTP   uint8 = 132
)

// Hook is where the kernel enters a base chain.
type Hook struct {
	Type     string // nat, filter or route
	Name     string // prerouting, input, forward, output, postrouting
	Priority int32
}

// Chain is a list of rules.
type Chain struct {
	Hook  *Hook // nil for a chain that others jump to
	Rules []Rule
}

// Rule is a list of statements, of which each goes on to the next or ends.
type Rule []Stmt

// Field is one part of what a set is looked up by.
type Field uint8

// The fields, in the packet's words.
const (
	Source      Field = iota // source address
	Destination              // destination address
	Protocol                 // transport protocol
	Port                     // destination port
	Index                    // a number that a rule has worked out
)

// Kind is what a set's keys lead to.
type Kind uint8

// The kinds.
const (
	Nothing   Kind = iota // a set
	Verdicts              // a map that packets follow
	Numbers               // a map of numbers below 65536, to be noted
	Endpoints             // a map of addresses with ports
)

// Set is a set of keys, or a map from keys to something. The kernel looks at the rules of all chains that a table's
// verdicts can lead to whenever one of them, or a rule that translates addresses, is added; elements of the other kinds
// cost nothing but themselves.
type Set struct {
	Key    []Field
	To     Kind
	Ranges bool // elements are ranges of addresses
	// rules add elements, and forget them so long after they were last seen; 0 for a set that only fragments fill
	Seconds int32
}

// Key is one key of a set. What the set's fields do not name is zero.
type Key struct {
	Source, Destination Addresses
	Protocol            uint8
	Port                uint16
	Index               uint32
}

// Value is what a key leads to, by the set's kind.
type Value struct {
	Verdict Verdict
	Number  uint32
	To      netip.AddrPort
}

// Goes is the value of a verdict.
func Goes(action, chain string) Value { return Value{Verdict: Verdict{action, chain}} }

// Element is a key of a set and what it leads to.
type Element struct {
	Key   Key
	Value Value
}

// Fragment is what one thing has in a table. Names of chains and sets are the fragment's own; elements go into its own
// sets or into those that are shared. Two fragments may have the same element, if they say the same of it.
type Fragment struct {
	Chains   map[string]Chain
	Sets     map[string]Set
	Elements map[string][]Element // by the name of the set
}
