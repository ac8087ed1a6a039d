package ownership

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	merging "sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// sortedConverter converts objects to values whose maps and associative lists are visited in the order of their keys.
// The library inserts the fields that it visits into sorted slices, which takes quadratic time in any other order.
// The values serve to compare objects: a merge would change the order of the lists.
type sortedConverter struct {
	managedfields.TypeConverter
	from int // number of items from which lists are sorted
}

func (c sortedConverter) ObjectToTyped(obj runtime.Object,
	opts ...merging.ValidationOptions) (*merging.TypedValue, error) {
	if c.from >= largeMap && !isLarge(obj) {
		return c.TypeConverter.ObjectToTyped(obj, opts...)
	}
	empty := &unstructured.Unstructured{}
	empty.SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	of, err := c.TypeConverter.ObjectToTyped(empty, opts...)
	if err != nil {
		return nil, err
	}
	var v value.Value
	if u, ok := obj.(*unstructured.Unstructured); ok {
		v = value.NewValueInterface(u.Object)
	} else if v, err = value.NewValueReflect(obj); err != nil {
		return nil, err
	}
	return merging.AsTyped(sortedValue{v, of.Schema(), of.TypeRef(), c.from}, of.Schema(), of.TypeRef(), opts...)
}

// sortedValue is a value of a type. Its maps and its associative lists are visited in the order of their keys.
type sortedValue struct {
	value.Value
	schema *schema.Schema
	ref    schema.TypeRef
	from   int // number of items from which lists are sorted
}

// child returns a value within v.
func (v sortedValue) child(of value.Value, ref schema.TypeRef) value.Value {
	if of == nil {
		return nil
	}
	return sortedValue{of, v.schema, ref, v.from}
}

func (v sortedValue) AsMap() value.Map { return v.AsMapUsing(value.HeapAllocator) }

func (v sortedValue) AsMapUsing(a value.Allocator) value.Map {
	m := v.Value.AsMapUsing(a)
	atom, ok := v.schema.Resolve(v.ref)
	if !ok || atom.Map == nil || atom.Map.ElementRelationship == schema.Atomic {
		return m
	}
	return sortedMap{m, v, atom.Map}
}

func (v sortedValue) AsList() value.List { return v.AsListUsing(value.HeapAllocator) }

func (v sortedValue) AsListUsing(a value.Allocator) value.List {
	l := v.Value.AsListUsing(a)
	atom, ok := v.schema.Resolve(v.ref)
	if !ok || atom.List == nil || atom.List.ElementRelationship != schema.Associative {
		return l
	}
	sorted := sortedList{List: l, of: v, element: atom.List.ElementType}
	if l.Length() >= v.from {
		sorted.order = orderOf(l, v.keysOf(atom.List))
	}
	return sorted
}

// keyField is a field that identifies the items of a list.
type keyField struct {
	name         string
	defaultValue value.Value // of items without the field; nil if there is none
}

// keysOf returns the fields that identify the items of a list, in the order of their names.
func (v sortedValue) keysOf(list *schema.List) []keyField {
	item, _ := v.schema.Resolve(list.ElementType)
	keys := make([]keyField, 0, len(list.Keys))
	for _, name := range slices.Sorted(slices.Values(list.Keys)) {
		key := keyField{name: name}
		if item.Map != nil {
			if field, ok := item.Map.FindField(name); ok && field.Default != nil {
				key.defaultValue = value.NewValueInterface(field.Default)
			}
		}
		keys = append(keys, key)
	}
	return keys
}

// orderOf returns the indexes of a list's items in the order of their keys. Without keys it is the order of the items.
func orderOf(l value.List, fields []keyField) []int {
	width := max(len(fields), 1)
	keys := make([]value.Value, l.Length()*width)
	order := make([]int, l.Length())
	for i := range order {
		order[i] = i
		item := l.At(i)
		if len(fields) == 0 {
			keys[i] = item
			continue
		}
		if item == nil || !item.IsMap() {
			continue // validation refuses it
		}
		of := item.AsMap()
		for j, field := range fields {
			if v, ok := of.Get(field.name); ok {
				keys[i*width+j] = v
			} else {
				keys[i*width+j] = field.defaultValue
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return slices.CompareFunc(keys[a*width:(a+1)*width], keys[b*width:(b+1)*width], compareKeys)
	})
	return order
}

func compareKeys(a, b value.Value) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return value.Compare(a, b)
}

// sortedMap is a map that is visited in the order of its keys.
type sortedMap struct {
	value.Map
	of   sortedValue
	atom *schema.Map
}

func (m sortedMap) refOf(key string) schema.TypeRef {
	if field, ok := m.atom.FindField(key); ok {
		return field.Type
	}
	return m.atom.ElementType
}

func (m sortedMap) Get(key string) (value.Value, bool) { return m.GetUsing(value.HeapAllocator, key) }

func (m sortedMap) GetUsing(a value.Allocator, key string) (value.Value, bool) {
	v, ok := m.Map.GetUsing(a, key)
	if !ok {
		return nil, false
	}
	return m.of.child(v, m.refOf(key)), true
}

func (m sortedMap) Iterate(fn func(string, value.Value) bool) bool {
	return m.IterateUsing(value.HeapAllocator, fn)
}

func (m sortedMap) IterateUsing(a value.Allocator, fn func(string, value.Value) bool) bool {
	for _, key := range (orderedMap{m.Map}).sortedKeys(nil) {
		if v, ok := m.GetUsing(a, key); ok && !fn(key, v) {
			return false
		}
	}
	return true
}

func (m sortedMap) Equals(other value.Map) bool { return value.MapEquals(m, other) }

func (m sortedMap) EqualsUsing(a value.Allocator, other value.Map) bool {
	return value.MapEqualsUsing(a, m, other)
}

func (m sortedMap) Zip(other value.Map, order value.MapTraverseOrder,
	fn func(key string, lhs, rhs value.Value) bool) bool {
	return m.ZipUsing(value.HeapAllocator, other, order, fn)
}

func (m sortedMap) ZipUsing(a value.Allocator, other value.Map, _ value.MapTraverseOrder,
	fn func(key string, lhs, rhs value.Value) bool) bool {
	for _, key := range (orderedMap{m.Map}).sortedKeys(other) {
		var lhs, rhs value.Value
		if v, ok := m.GetUsing(a, key); ok {
			lhs = v
		}
		if other != nil {
			if v, ok := other.GetUsing(a, key); ok {
				rhs = v
			}
		}
		if !fn(key, lhs, rhs) {
			return false
		}
	}
	return true
}

// sortedList is an associative list that is visited in the order of its keys.
type sortedList struct {
	value.List
	of      sortedValue
	element schema.TypeRef
	order   []int // nil is the order of the list
}

func (l sortedList) At(i int) value.Value { return l.AtUsing(value.HeapAllocator, i) }

func (l sortedList) AtUsing(a value.Allocator, i int) value.Value {
	if l.order != nil {
		i = l.order[i]
	}
	return l.of.child(l.List.AtUsing(a, i), l.element)
}

func (l sortedList) Range() value.ListRange { return l.RangeUsing(value.HeapAllocator) }

func (l sortedList) RangeUsing(value.Allocator) value.ListRange { return &sortedRange{l, -1} }

func (l sortedList) Equals(other value.List) bool { return value.ListEquals(l, other) }

func (l sortedList) EqualsUsing(a value.Allocator, other value.List) bool {
	return value.ListEqualsUsing(a, l, other)
}

// sortedRange visits the items of a list.
type sortedRange struct {
	list sortedList
	at   int
}

// Next implements value.ListRange.
func (r *sortedRange) Next() bool {
	r.at++
	return r.at < r.list.Length()
}

// Item implements value.ListRange.
func (r *sortedRange) Item() (int, value.Value) { return r.at, r.list.At(r.at) }
