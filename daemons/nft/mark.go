package nft

import (
	"fmt"
	"hash/fnv"
)

// Mark tells a rule from others. The kernel keeps it beside the rule, so that what is there can be compared with what
// should be without reading the kernel's form of it: a rule that somebody has added or edited has no mark of ours.
func (r Rule) Mark(f Family) uint64 {
	h := fnv.New64a()
	for _, s := range r {
		h.Write([]byte(s.text(f)))
		h.Write([]byte{0})
	}
	return h.Sum64()
}

// Mark tells sets of different kinds from each other.
func (s Set) Mark() uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, s.Key, s.To, s.Ranges, s.Seconds)
	return h.Sum64()
}
