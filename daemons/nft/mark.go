package nft

import (
	"fmt"
	"hash/fnv"
)

// Mark returns a hash that identifies the rule. The kernel stores it with the rule, so that rules can be compared
// without decoding them. A rule that another program has added or edited does not have the mark.
func (r Rule) Mark(f Family) uint64 {
	h := fnv.New64a()
	for _, s := range r {
		h.Write([]byte(s.text(f)))
		h.Write([]byte{0})
	}
	return h.Sum64()
}

// Mark returns a hash of the set's type.
func (s Set) Mark() uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, s.Key, s.Values, s.Ranges, s.Timeout)
	return h.Sum64()
}
