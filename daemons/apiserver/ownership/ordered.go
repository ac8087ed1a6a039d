package ownership

import (
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	merging "sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// orderedConverter converts objects with large maps to values whose fields are visited in the order of their names. A
// field set is a sorted list. Inserting fields in map order takes quadratic time.
//
// The result of a merge is visited in map order again. It is compared with the live object: if the live object is
// ordered, the merged value is ordered too.
type orderedConverter struct {
	managedfields.TypeConverter
	ordersAll bool // also order objects without large maps, for a merge with a large declaration
}

// largeMap is the number of entries from which sorting a map pays off, and from which linearMerge merges a map or list.
const largeMap = 1000

func (c orderedConverter) ObjectToTyped(obj runtime.Object,
	opts ...merging.ValidationOptions) (*merging.TypedValue, error) {
	t, err := c.TypeConverter.ObjectToTyped(obj, opts...)
	if err != nil || !c.ordersAll && !hasLargeMaps(obj) {
		return t, err
	}
	return merging.AsTypedUnvalidated(orderedValue{t.AsValue()}, t.Schema(),
		t.TypeRef()), nil // it has been validated already
}

// hasLargeMaps reports whether an object contains a large map at any depth.
func hasLargeMaps(obj runtime.Object) bool {
	return !visitContainers(reflect.ValueOf(obj), func(size int, isMap bool) bool { return !isMap || size < largeMap })
}

// isLarge reports whether an object contains a large map or list at any depth.
func isLarge(obj runtime.Object) bool {
	return !visitContainers(reflect.ValueOf(obj), func(size int, _ bool) bool { return size < largeMap })
}

// largeEntries returns the number of entries in all large maps and lists of an object.
func largeEntries(obj runtime.Object) (n int) {
	visitContainers(reflect.ValueOf(obj), func(size int, _ bool) bool {
		if size >= largeMap {
			n += size
		}
		return true
	})
	return n
}

// visitContainers calls visit for the maps and lists of a value, at any depth, until visit returns false. It reports
// whether visit returned true for all.
func visitContainers(v reflect.Value, visit func(size int, isMap bool) bool) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return v.IsNil() || visitContainers(v.Elem(), visit)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return true // a time refers to its time zone, which is long and shared by the whole process
		}
		for i := range v.NumField() {
			if !visitContainers(v.Field(i), visit) {
				return false
			}
		}
	case reflect.Slice:
		k := v.Type().Elem().Kind()
		if k == reflect.Uint8 {
			return true
		}
		if !visit(v.Len(), false) {
			return false
		}
		for i := 0; i < v.Len() && k != reflect.String; i++ {
			if !visitContainers(v.Index(i), visit) {
				return false
			}
		}
	case reflect.Map:
		if !visit(v.Len(), true) {
			return false
		}
		if v.Type().Elem().Kind() == reflect.String {
			return true
		}
		for entries := v.MapRange(); entries.Next(); {
			if !visitContainers(entries.Value(), visit) {
				return false
			}
		}
	}
	return true
}

// orderedValue is a value whose maps are visited in the order of their keys.
type orderedValue struct{ value.Value }

// orderMaps returns v with its maps visited in the order of their keys.
func orderMaps(v value.Value) value.Value {
	if _, ok := v.(orderedValue); ok || v == nil {
		return v
	}
	return orderedValue{v}
}

func (v orderedValue) AsMap() value.Map { return v.AsMapUsing(value.HeapAllocator) }

func (v orderedValue) AsMapUsing(a value.Allocator) value.Map {
	return orderedMap{v.Value.AsMapUsing(a)}
}

type orderedMap struct{ value.Map }

// sortedKeys returns the sorted keys of m and other, each key once.
func (m orderedMap) sortedKeys(other value.Map) []string {
	keys := make([]string, 0, m.Length())
	m.Map.Iterate(func(key string, _ value.Value) bool {
		keys = append(keys, key)
		return true
	})
	if other != nil {
		other.Iterate(func(key string, _ value.Value) bool {
			if !m.Has(key) {
				keys = append(keys, key)
			}
			return true
		})
	}
	slices.Sort(keys)
	return keys
}

func (m orderedMap) Get(key string) (value.Value, bool) { return m.GetUsing(value.HeapAllocator, key) }

func (m orderedMap) GetUsing(a value.Allocator, key string) (value.Value, bool) {
	v, ok := m.Map.GetUsing(a, key)
	if !ok || v == nil {
		return v, ok
	}
	return orderedValue{v}, true
}

func (m orderedMap) Iterate(fn func(string, value.Value) bool) bool {
	return m.IterateUsing(value.HeapAllocator, fn)
}

func (m orderedMap) IterateUsing(a value.Allocator, fn func(string, value.Value) bool) bool {
	for _, key := range m.sortedKeys(nil) {
		if v, ok := m.GetUsing(a, key); ok && !fn(key, v) {
			return false
		}
	}
	return true
}

func (m orderedMap) Equals(other value.Map) bool { return value.MapEquals(m, other) }

func (m orderedMap) EqualsUsing(a value.Allocator, other value.Map) bool {
	return value.MapEqualsUsing(a, m, other)
}

func (m orderedMap) Zip(
	other value.Map,
	order value.MapTraverseOrder,
	fn func(key string, lhs, rhs value.Value) bool,
) bool {
	return m.ZipUsing(value.HeapAllocator, other, order, fn)
}

func (m orderedMap) ZipUsing(
	a value.Allocator,
	other value.Map,
	_ value.MapTraverseOrder,
	fn func(key string, lhs, rhs value.Value) bool,
) bool {
	for _, key := range m.sortedKeys(other) {
		var lhs, rhs value.Value
		if v, ok := m.GetUsing(a, key); ok {
			lhs = v
		}
		if other != nil {
			if v, ok := other.GetUsing(a, key); ok {
				rhs = orderMaps(v)
			}
		}
		if !fn(key, lhs, rhs) {
			return false
		}
	}
	return true
}
