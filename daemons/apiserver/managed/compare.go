package managed

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sync"

	"clusterctl/daemons/apiserver/scan"
)

// comparison compares two objects, and writes the result as a key.
type comparison struct {
	key         []byte
	live, next  shapeTree
	leafIndexes map[uint64]int // indexes of live's leaves
	seen        []bool
}

var comparisons = sync.Pool{New: func() any { return &comparison{leafIndexes: map[uint64]int{}} }}

func (c *comparison) reset() { c.key = c.key[:0] }

func (c *comparison) addText(s string) { c.key = append(append(c.key, s...), 0) }

// compare adds the shapes of both objects to the key. For each value it adds whether it is new, removed, equal or
// different. It returns false if it cannot compare them.
func (c *comparison) compare(keys map[string]bool, live, next []byte) bool {
	c.live.reset()
	c.next.reset()
	c.live.keys, c.next.keys = keys, keys
	if len(live) > 0 && !c.live.read(live) || !c.next.read(next) {
		return false
	}
	c.key = append(append(c.key, c.live.shape...), 0)
	if bytes.Equal(c.live.shape, c.next.shape) {
		c.key = append(c.key, '=')
	} else {
		if isAmbiguous(c.live.shape) {
			return false
		}
		c.key = append(c.key, c.next.shape...)
	}
	c.key = append(c.key, 0)
	if len(live) == 0 {
		return true
	}
	return c.values()
}

func (c *comparison) values() bool {
	before := c.live.leaves
	c.seen = append(c.seen[:0], make([]bool, len(before))...)
	indexed, at := false, 0
	for _, leaf := range c.next.leaves {
		found := at
		if at >= len(before) || before[at].path != leaf.path {
			if !indexed {
				clear(c.leafIndexes)
				for i := range before {
					c.leafIndexes[before[i].path] = i
				}
				indexed = true
			}
			var ok bool
			if found, ok = c.leafIndexes[leaf.path]; !ok {
				c.addUnpaired('+', leaf)
				continue
			}
		}
		if c.seen[found] {
			return false // two leaves have the same path, so they cannot be matched
		}
		at, c.seen[found] = found+1, true
		if bytes.Equal(before[found].value, leaf.value) {
			c.key = append(c.key, '=')
		} else {
			if isAmbiguous(before[found].value) {
				return false
			}
			c.key = append(c.key, '!')
		}
	}
	for i, leaf := range before {
		if !c.seen[i] {
			c.addUnpaired('-', leaf)
		}
	}
	return true
}

// isAmbiguous reports whether different text may have the same meaning. Objects that were stored before <, > and & were
// left unescaped have escapes.
func isAmbiguous(text []byte) bool { return bytes.Contains(text, []byte(`\u00`)) }

// addUnpaired adds a value that only one of the objects has. In a list, the other object may have the same item with
// other keys. Then the value matters, so it is added as well.
func (c *comparison) addUnpaired(sign byte, leaf leaf) {
	c.key = append(c.key, sign)
	for shift := 0; shift < 64; shift += 8 {
		c.key = append(c.key, byte(leaf.path>>shift))
	}
	if leaf.inList {
		c.key = append(append(c.key, leaf.value...), 0)
	}
}

// shapeTree is the structure of an object. shape has names, kinds of values, and the values that identify the items of
// lists. leaves has all other values with their paths.
type shapeTree struct {
	scan.Scanner
	keys   map[string]bool // quoted names of values that identify items
	shape  []byte
	leaves []leaf
	depth  int
}

type leaf struct {
	path   uint64
	value  []byte
	inList bool // whether it is in a list, at any depth
}

// seed makes the hashes of paths differ between processes.
var seed = maphash.MakeSeed()

func (t *shapeTree) reset() { t.shape, t.leaves = t.shape[:0], t.leaves[:0] }

// maxDepth limits recursion. The results for deeper objects are not remembered.
const maxDepth = 64

func (t *shapeTree) read(data []byte) bool {
	t.Data, t.Pos, t.depth = data, 0, 0
	return t.object(1, position{isRoot: true}) && t.Pos == len(data)
}

// position is the position of a value.
type position struct {
	isRoot, isMetadata bool
	inList             bool // in a list, at any depth
	isItemMember       bool // directly in an object that is an item of a list
	isIdentifying      bool // identifies an item, or is an item itself
}

func childPath(path, by uint64) uint64 {
	path ^= by + 0x9e3779b97f4a7c15 + path<<6 + path>>2
	return path * 0xff51afd7ed558ccd
}

// value reads any value.
func (t *shapeTree) value(path uint64, in position) bool {
	switch t.Peek() {
	case '{':
		return t.object(path, in)
	case '[':
		return t.list(path)
	}
	start := t.Pos
	if !t.Scalar() {
		return false
	}
	text := t.Data[start:t.Pos]
	t.shape = append(t.shape, kindOf(text[0]))
	if in.isIdentifying {
		t.shape = append(append(t.shape, text...), 0)
		return true
	}
	t.leaves = append(t.leaves, leaf{path, text, in.inList})
	return true
}

func kindOf(first byte) byte {
	switch first {
	case '"', 'n':
		return first
	case 't', 'f':
		return 't'
	}
	return '0'
}

func (t *shapeTree) object(path uint64, in position) bool {
	if t.depth++; t.depth > maxDepth || !t.Take('{') {
		return false
	}
	t.shape = append(t.shape, '{')
	for !t.Take('}') {
		name, ok := t.Name()
		if !ok {
			return false
		}
		if in.isMetadata && (string(name) == `"managedFields"` || string(name) == `"resourceVersion"`) {
			if !t.Value() {
				return false
			}
		} else {
			t.shape = append(t.shape, name...)
			below := position{isMetadata: in.isRoot && string(name) == `"metadata"`, inList: in.inList, isIdentifying: in.isItemMember && t.keys[string(name)]}
			if !t.value(childPath(path, maphash.Bytes(seed, name)), below) {
				return false
			}
		}
		if !t.Next('}') {
			return false
		}
	}
	t.shape = append(t.shape, '}')
	t.depth--
	return true
}

func (t *shapeTree) list(path uint64) bool {
	start, shape, leaves := t.Pos, len(t.shape), len(t.leaves)
	if t.depth++; t.depth > maxDepth || !t.Take('[') {
		return false
	}
	t.shape = append(t.shape, '[')
	var few [16]uint64
	recorded := few[:0]
	for i := uint64(0); !t.Take(']'); i++ {
		by := i
		if t.Peek() == '{' {
			var ok bool
			if by, ok = t.identity(); !ok {
				return false
			}
			if slices.Contains(recorded, by) || len(recorded) > 256 {
				// These items have the same identity, or there are too many to compare. So the whole list becomes part
				// of the shape.
				t.Pos, t.shape, t.leaves, t.depth = start, t.shape[:shape], t.leaves[:leaves], t.depth-1
				if !t.Value() {
					return false
				}
				t.shape = append(append(append(t.shape, '*'), t.Data[start:t.Pos]...), 0)
				return true
			}
			recorded = append(recorded, by)
		}
		if !t.value(childPath(path, by), position{inList: true, isItemMember: true, isIdentifying: true}) {
			return false
		}
		if !t.Next(']') {
			return false
		}
	}
	t.shape = append(t.shape, ']')
	t.depth--
	return true
}

// identity returns the hash of the values that identify the item that begins here.
func (t *shapeTree) identity() (uint64, bool) {
	start := t.Pos
	defer func() { t.Pos = start }()
	var h maphash.Hash
	h.SetSeed(seed)
	t.Pos++
	for !t.Take('}') {
		from := t.Pos
		name, ok := t.Name()
		if !ok {
			return 0, false
		}
		tells := t.keys[string(name)]
		if !t.Value() {
			return 0, false
		}
		if tells {
			_, _ = h.Write(t.Data[from:t.Pos]) // never fails
			_ = h.WriteByte(0)
		}
		if !t.Next('}') {
			return 0, false
		}
	}
	return h.Sum64(), true
}
