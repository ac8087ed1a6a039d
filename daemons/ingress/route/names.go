package route

import "hash/maphash"

// names is an immutable map from host names, or from the paths of one host. A changed copy shares all unchanged parts,
// so that a single change among many thousands of names costs little.
type names[T any] struct {
	parts *[nameParts]map[string]*T
	size  int
}

const nameParts = 256

var nameSeed = maphash.MakeSeed()

// get returns the value of a name, or nil.
func (n names[T]) get(name string) *T {
	if n.parts == nil {
		return nil
	}
	return n.parts[maphash.String(nameSeed, name)%nameParts][name]
}

// getBytes is of without allocating a string.
func (n names[T]) getBytes(name []byte) *T {
	if n.parts == nil {
		return nil
	}
	return n.parts[maphash.Bytes(nameSeed, name)%nameParts][string(name)]
}

// with returns a copy with changes. A nil value removes a name.
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
			next[at], own[at] = copyMap(next[at]), true
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
