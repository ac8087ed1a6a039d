package ownership

import (
	"maps"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
)

// linearMerge merges a declared object into a live one as the library's apply does, in one pass. It takes linear time,
// plus the time to sort, for any order of list items. The library inserts items one by one into sorted slices, which
// takes quadratic time, and visits an object ten times.
//
// It sets isUnsupported if the input is invalid or unusual. Then its results have no meaning, and the library has to
// do the work.
type linearMerge struct {
	schema        *schema.Schema
	tracksChanges bool // return the changed fields
	isUnsupported bool
	isChanged     bool              // the result differs from the live object
	elements      map[string]string // encoded path elements of fields
}

// liveValue is a value of the live object.
type liveValue struct {
	value  any
	exists bool
}

// merge merges a declared value into a live one. It returns the result, the fields that the declaration owns, and the
// fields that differ from the live object.
func (m *linearMerge) merge(ref schema.TypeRef, live liveValue, declared any) (out any, owned, changed *fieldTree) {
	atom, ok := m.schema.Resolve(ref)
	if !ok || m.isUnsupported {
		m.isUnsupported = true
		return nil, nil, nil
	}
	switch d := declared.(type) {
	case nil:
		return m.mergeNull(atom, live)
	case map[string]any:
		l, isMap := live.value.(map[string]any)
		if atom.Map == nil || live.value != nil && !isMap {
			break
		}
		if atom.Map.ElementRelationship == schema.Atomic || len(l) == 0 && len(d) == 0 {
			m.validate(ref, live.value)
			m.validate(ref, declared)
			return m.mergeLeaf(live, declared)
		}
		return m.mergeMap(atom.Map, live.exists, l, d)
	case []any:
		l, isList := live.value.([]any)
		if atom.List == nil || live.value != nil && !isList {
			break
		}
		if atom.List.ElementRelationship == schema.Atomic {
			m.validate(ref, live.value)
			m.validate(ref, declared)
			return m.mergeLeaf(live, declared)
		}
		if len(l) == 0 && len(d) == 0 {
			out, _, changed = m.mergeLeaf(live, declared)
			return out, nil, changed
		}
		return m.mergeList(atom.List, live.exists, l, d)
	default:
		if isScalar(atom.Scalar, declared) && (live.value == nil || isScalar(atom.Scalar, live.value)) {
			return m.mergeLeaf(live, declared)
		}
	}
	m.isUnsupported = true
	return nil, nil, nil
}

// mergeNull merges an explicit null. It removes a scalar or an atomic value, and leaves what is in containers.
func (m *linearMerge) mergeNull(atom schema.Atom, live liveValue) (out any, owned, changed *fieldTree) {
	switch {
	case atom.Map != nil && atom.Scalar == nil && atom.List == nil:
		if l, isMap := live.value.(map[string]any); isMap && len(l) > 0 &&
			atom.Map.ElementRelationship != schema.Atomic {
			m.validate(schema.TypeRef{Inlined: atom}, live.value)
			m.refuseEmptyLists(live.value)
			return live.value, member(nil), nil
		}
	case atom.List != nil && atom.Scalar == nil && atom.Map == nil:
		if l, isList := live.value.([]any); isList && len(l) > 0 &&
			atom.List.ElementRelationship != schema.Atomic {
			m.validate(schema.TypeRef{Inlined: atom}, live.value)
			m.refuseEmptyLists(live.value)
			return live.value, member(nil), nil
		}
	case atom.Scalar == nil || atom.Map != nil || atom.List != nil:
		m.isUnsupported = true
	}
	return m.mergeLeaf(live, nil)
}

// refuseEmptyLists leaves the merge to the library if a value has an empty list. It is the value of a container that is
// declared as empty. If that is declared again, the library removes the container with all that it has, and restores
// what others own, but not empty lists.
func (m *linearMerge) refuseEmptyLists(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			m.refuseEmptyLists(member)
		}
	case []any:
		if len(v) == 0 {
			m.isUnsupported = true
		}
		for _, item := range v {
			m.refuseEmptyLists(item)
		}
	}
}

// mergeLeaf replaces a value as a whole.
func (m *linearMerge) mergeLeaf(live liveValue, declared any) (out any, owned, changed *fieldTree) {
	if !live.exists || !equalValues(live.value, declared) {
		m.isChanged = true
		if m.tracksChanges {
			changed = member(nil)
		}
	}
	return declared, member(nil), changed
}

func (m *linearMerge) mergeMap(
	t *schema.Map, exists bool, live, declared map[string]any,
) (out any, owned, changed *fieldTree) {
	merged := make(map[string]any, max(len(live), len(declared)))
	for name, value := range live {
		if _, both := declared[name]; !both {
			ref, _ := m.fieldType(t, name)
			m.validate(ref, value)
			merged[name] = value
		}
	}
	if !exists {
		changed = m.added()
	}
	if len(declared) == 0 {
		m.refuseEmptyLists(live)
		owned = member(nil)
	}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		ref, isField := m.fieldType(t, name)
		l, ok := live[name]
		value, own, change := m.merge(ref, liveValue{l, ok}, declared[name])
		if m.isUnsupported {
			return nil, nil, nil
		}
		if !isField {
			own = member(own)
		}
		merged[name] = value
		element := m.fieldElement(name, isField)
		owned, changed = withChild(owned, element, own), withChild(changed, element, change)
	}
	return merged, owned, changed
}

// added marks the result as changed by a field that the live object does not have.
func (m *linearMerge) added() *fieldTree {
	m.isChanged = true
	if m.tracksChanges {
		return member(nil)
	}
	return nil
}

func (m *linearMerge) mergeList(
	t *schema.List, exists bool, live, declared []any,
) (out any, owned, changed *fieldTree) {
	declaredKeys, declaredIndex := m.listKeys(t, declared)
	liveKeys, liveIndex := m.listKeys(t, live)
	if m.isUnsupported {
		return nil, nil, nil
	}
	if !exists {
		changed = m.added()
	}
	order := mergeOrder(liveKeys, declaredKeys, liveIndex, declaredIndex)
	merged := make([]any, 0, len(order))
	trees := make([][2]*fieldTree, len(declared))
	next := 0 // index of the following item in the live list
	for _, at := range order {
		if at.live >= 0 && at.live != next {
			m.isChanged = true
		}
		next = at.live + 1
		if at.declared < 0 {
			m.validate(t.ElementType, live[at.live])
			merged = append(merged, live[at.live])
			continue
		}
		var l liveValue
		if at.live >= 0 {
			l = liveValue{live[at.live], true}
		}
		value, own, change := m.merge(t.ElementType, l, declared[at.declared])
		if m.isUnsupported {
			return nil, nil, nil
		}
		merged = append(merged, value)
		trees[at.declared] = [2]*fieldTree{member(own), change}
	}
	for _, i := range sortedIndexes(declaredKeys) {
		owned = withChild(owned, declaredKeys[i].text, trees[i][0])
		changed = withChild(changed, declaredKeys[i].text, trees[i][1])
	}
	return merged, owned, changed
}

func sortedIndexes(keys []itemKey) []int {
	indexes := make([]int, len(keys))
	for i := range indexes {
		indexes[i] = i
	}
	slices.SortFunc(indexes, func(i, j int) int {
		return slices.CompareFunc(keys[i].values, keys[j].values, compareScalars)
	})
	return indexes
}

// mergedItem is the position of an item in both lists; -1 where a list does not have it.
type mergedItem struct{ live, declared int }

// mergeOrder returns the order in which the library merges two lists. Shared items are in the declared order. Other
// items of the live list stay behind their predecessors, before new items.
func mergeOrder(live, declared []itemKey, liveIndex, declaredIndex map[string]int) []mergedItem {
	order := make([]mergedItem, 0, max(len(live), len(declared)))
	liveAt := func(d int) int {
		if i, ok := liveIndex[declared[d].text]; ok {
			return i
		}
		return -1
	}
	shared := 0 // the first shared item that has not been merged
	advance := func(from int) {
		for shared = from; shared < len(declared) && liveAt(shared) < 0; {
			shared++
		}
	}
	advance(0)
	for l, d := 0, 0; l < len(live) || d < len(declared); {
		if l < len(live) {
			in, isShared := declaredIndex[live[l].text]
			switch {
			case !isShared:
				order = append(order, mergedItem{l, -1})
				l++
				continue
			case in == d:
				l++
			case d < len(declared) && shared < len(declared) && in != shared:
				l++ // merged where the declared list has it
				continue
			case in < d:
				l++ // merged already
			}
		}
		if d < len(declared) {
			order = append(order, mergedItem{liveAt(d), d})
			if d == shared {
				advance(d + 1)
			}
			d++
		}
	}
	return order
}
