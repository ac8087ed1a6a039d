package value

import (
	"bytes"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Same reports whether two values are equal for the API: empty equals nil, and quantities and times are compared by
// value. Most values that are compared are equal, which a plain walk detects at a fraction of the cost of
// apimachinery's comparison. Otherwise apimachinery's comparison decides.
func Same(a, b any) bool {
	v, w := reflect.ValueOf(a), reflect.ValueOf(b)
	if v.IsValid() && w.IsValid() && v.Type() == w.Type() && isSurelySame(v, w, 0) {
		return true
	}
	return equality.Semantic.DeepEqual(a, b)
}

var (
	quantityType  = reflect.TypeFor[resource.Quantity]()
	timeType      = reflect.TypeFor[metav1.Time]()
	microTimeType = reflect.TypeFor[metav1.MicroTime]()
	fieldsType    = reflect.TypeFor[metav1.FieldsV1]()
)

// maxDepth bounds the depth of the walk, for values that refer to themselves.
const maxDepth = 100

// isSurelySame returns true only if the values are equal; false means unknown. Both must have the same type.
func isSurelySame(v, w reflect.Value, depth int) bool {
	if depth > maxDepth {
		return false
	}
	switch v.Kind() {
	case reflect.Bool:
		return v.Bool() == w.Bool()
	case reflect.String:
		return v.String() == w.String()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return v.Int() == w.Int()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return v.Uint() == w.Uint()
	case reflect.Float32, reflect.Float64:
		return v.Float() == w.Float()
	case reflect.Pointer:
		if v.IsNil() || w.IsNil() {
			return v.IsNil() && w.IsNil()
		}
		return isSurelySame(v.Elem(), w.Elem(), depth+1)
	case reflect.Struct:
		return areSameStructs(v, w, depth)
	case reflect.Slice:
		if v.Len() != w.Len() {
			return false
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return bytes.Equal(v.Bytes(), w.Bytes())
		}
		for i := range v.Len() {
			if !isSurelySame(v.Index(i), w.Index(i), depth+1) {
				return false
			}
		}
		return true
	case reflect.Map:
		if v.Len() != w.Len() {
			return false
		}
		for pairs := v.MapRange(); pairs.Next(); {
			other := w.MapIndex(pairs.Key())
			if !other.IsValid() || !isSurelySame(pairs.Value(), other, depth+1) {
				return false
			}
		}
		return true
	}
	return false
}

func areSameStructs(v, w reflect.Value, depth int) bool {
	switch t := v.Type(); t {
	case quantityType:
		a, b := pointerTo[resource.Quantity](v), pointerTo[resource.Quantity](w)
		return a.Cmp(*b) == 0
	case timeType:
		return pointerTo[metav1.Time](v).UTC() == pointerTo[metav1.Time](w).UTC()
	case microTimeType:
		return pointerTo[metav1.MicroTime](v).UTC() == pointerTo[metav1.MicroTime](w).UTC()
	case fieldsType:
		return pointerTo[metav1.FieldsV1](v).Equal(*pointerTo[metav1.FieldsV1](w))
	}
	for i := range v.NumField() {
		if !isSurelySame(v.Field(i), w.Field(i), depth+1) {
			return false
		}
	}
	return true
}

// pointerTo returns a pointer to a value, or to a copy if it is not addressable.
func pointerTo[T any](v reflect.Value) *T {
	if v.CanAddr() {
		return v.Addr().Interface().(*T)
	}
	value := v.Interface().(T)
	return &value
}
