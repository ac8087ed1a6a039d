package route

import "hash/maphash"

// names is a map from hosts' names, or the paths of one host, that never changes. Another one with some changes shares
// all but the parts in which these are, so that one change among many thousands costs little.
type names[T any] struct {
	parts *[nameParts]map[string]*T
	size  int
}

const nameParts = 256

var nameSeed = maphash.MakeSeed()

// of returns what a name has, nil for nothing.
func (n names[T]) of(name string) *T {
	if n.parts == nil {
		return nil
	}
	return n.parts[maphash.String(nameSeed, name)%nameParts][name]
}

// ofBytes is of, for a name that is about to be forgotten.
func (n names[T]) ofBytes(name []byte) *T {
	if n.parts == nil {
		return nil
	}
	return n.parts[maphash.Bytes(nameSeed, name)%nameParts][string(name)]
}

// with returns names of which some have something else; nil for nothing.
func (n names[T]) with(changes map[string]*T) names[T] {
	if len(changes) == 0 {
		return n
	}
	next, size := new([nameParts]map[string]*T), n.size
	if n.parts != nil {
		*next = *n.parts
	}
	var own [nameParts]bool
	for name, v := range changes {
		at := maphash.String(nameSeed, name) % nameParts
		if !own[at] {
			next[at], own[at] = copied(next[at]), true
		}
		size -= len(next[at])
		if v == nil {
			delete(next[at], name)
		} else {
			next[at][name] = v
		}
		size += len(next[at])
	}
	return names[T]{next, size}
}
