// Package nft represents packet rules as plain values. A Table consists of a base, with its hooks and shared sets, and
// of fragments: the rules of one service, one policy or one set of addresses. Fragments are added and removed
// individually. Only the resulting differences are written to the kernel, so that a change costs only what it affects.
// Text renders a table like nft, for people and golden tests. Package nft/kernel writes tables to the kernel.
package nft

import "net/netip"

// Family is the address family of a table.
type Family uint8

// These are the families with the kernel's numbers.
const (
	IPv4 Family = 2
	IPv6 Family = 10
)

// addressWord returns nft's name of the family's addresses.
func (f Family) addressWord() string {
	if f == IPv6 {
		return "ip6"
	}
	return "ip"
}

func (f Family) String() string { return f.addressWord() }

// These are protocol numbers.
const (
	ICMP   uint8 = 1
	TCP    uint8 = 6
	UDP    uint8 = 17
	ICMPv6 uint8 = 58
	SCTP   uint8 = 132
)

// Hook is the point at which the kernel enters a base chain.
type Hook struct {
	Type     string // nat, filter or route
	Name     string // prerouting, input, forward, output, postrouting
	Priority int32
}

// Chain is a list of rules.
type Chain struct {
	Hook  *Hook // nil for a chain that is only reached by jumps
	Rules []Rule
}

// Rule is a list of statements. Each either continues with the next or ends the rule.
type Rule []Stmt

// Field is one field of a set's key.
type Field uint8

// These are the fields.
const (
	Source      Field = iota // source address
	Destination              // destination address
	Protocol                 // transport protocol
	Port                     // destination port
	Index                    // a number that a rule has computed
)

// Kind is the type of a set's values.
type Kind uint8

// These are the kinds.
const (
	NoValues  Kind = iota // no values: a set
	Verdicts              // a map to verdicts
	Numbers               // a map to numbers below 65536, for StoreNumber
	Endpoints             // a map to addresses with ports
)

// Set is a set of keys, or a map from keys to values. Whenever a verdict or an address translation rule is added, the
// kernel checks the rules of all chains that the table's verdicts can reach. Elements of other kinds do not cause such
// checks.
type Set struct {
	Key    []Field
	Values Kind
	Ranges bool // the elements are ranges of addresses
	// Timeout is the timeout of elements that rules add. It is 0 for a set that only fragments fill.
	Timeout int32
}

// Key is one key of a set. Fields that the set does not use are zero.
type Key struct {
	Source, Destination Addresses
	Protocol            uint8
	Port                uint16
	Index               uint32
}

// Value is the value of a key, according to the set's kind.
type Value struct {
	Verdict Verdict
	Number  uint32
	To      netip.AddrPort
}

// VerdictValue returns the value for a verdict.
func VerdictValue(action, chain string) Value { return Value{Verdict: Verdict{action, chain}} }

// Element is a key of a set with its value.
type Element struct {
	Key   Key
	Value Value
}

// Fragment is the part of a table for one object. Chains and sets belong to one fragment. Elements belong to the
// fragment's own sets or to shared ones. Two fragments may have the same element if its values are equal.
type Fragment struct {
	Chains   map[string]Chain
	Sets     map[string]Set
	Elements map[string][]Element // by set name
}
