package objectjson

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// specialDecoder returns the reader of a type that decodes itself; nil for other types.
func specialDecoder(t reflect.Type) decoder {
	if t.Kind() == reflect.Pointer {
		return nil // the type that it points to is checked instead
	}
	switch t {
	case reflect.TypeFor[metav1.Time]():
		return readTime
	case reflect.TypeFor[intstr.IntOrString]():
		return readIntOrString
	case reflect.TypeFor[metav1.FieldsV1]():
		return readFields
	case reflect.TypeFor[resource.Quantity]():
		return readQuantity
	}
	for _, own := range []reflect.Type{reflect.TypeFor[json.Unmarshaler](),
		reflect.TypeFor[encoding.TextUnmarshaler]()} {
		if t.Implements(own) || reflect.PointerTo(t).Implements(own) {
			return standardDecoder(t)
		}
	}
	return nil
}

func readBool(from *jsonText, at unsafe.Pointer) bool {
	if from.literal("true") {
		*(*bool)(at) = true
		return true
	}
	return from.literal("false") || from.null()
}

func readInt32(from *jsonText, at unsafe.Pointer) bool {
	if from.null() {
		return true
	}
	v, ok := from.integer(32)
	*(*int32)(at) = int32(v)
	return ok
}

func readInt64(from *jsonText, at unsafe.Pointer) bool {
	if from.null() {
		return true
	}
	v, ok := from.integer(64)
	*(*int64)(at) = v
	return ok
}

func readString(from *jsonText, at unsafe.Pointer) bool {
	if from.null() {
		return true
	}
	s, ok := from.string()
	*(*string)(at) = s
	return ok
}

func readStrings(from *jsonText, at unsafe.Pointer) bool {
	if from.null() {
		return true
	}
	if !from.enter('{') {
		return false
	}
	v := map[string]string{}
	*(*map[string]string)(at) = v
	if from.leave('}') {
		return true
	}
	for {
		name, ok := from.string()
		if !ok || !from.take(':') {
			return false
		}
		if from.null() {
			v[name] = ""
		} else if v[name], ok = from.string(); !ok {
			return false
		}
		if from.leave('}') {
			return true
		}
		if !from.take(',') {
			return false
		}
	}
}

// readTime decodes a time in the form that the API writes. Other forms are left to encoding/json.
func readTime(from *jsonText, at unsafe.Pointer) bool {
	if from.null() {
		return true
	}
	s, literal, ok := from.quoted()
	const form = "2006-01-02T15:04:05Z"
	if !ok || !literal || len(s) != len(form) {
		return false
	}
	for i, c := range []byte(form) {
		if digit := c >= '0' && c <= '9'; digit != (s[i] >= '0' && s[i] <= '9') || !digit && s[i] != c {
			return false
		}
	}
	two := func(i int) int { return int(s[i]-'0')*10 + int(s[i+1]-'0') }
	year, month, day, hour, minute, second := two(0)*100+two(2), two(5), two(8), two(11), two(14), two(17)
	read := time.Date(year, time.Month(month), day, hour, minute, second, 0, time.UTC)
	if month < 1 || month > 12 || read.Day() != day || hour > 23 || minute > 59 || second > 59 {
		return false
	}
	(*metav1.Time)(at).Time = read.Local()
	return true
}

func readIntOrString(from *jsonText, at unsafe.Pointer) bool {
	v := (*intstr.IntOrString)(at)
	from.skipSpace()
	if from.pos < len(from.data) && from.data[from.pos] == '"' {
		s, ok := from.string()
		*v = intstr.FromString(s)
		return ok
	}
	n, ok := from.integer(32)
	*v = intstr.FromInt32(int32(n))
	return ok
}

func readFields(from *jsonText, at unsafe.Pointer) bool {
	value, ok := from.value()
	if ok && string(value) != "null" {
		(*metav1.FieldsV1)(at).Raw = bytes.Clone(value)
	}
	return ok
}

func readQuantity(from *jsonText, at unsafe.Pointer) bool {
	value, ok := from.value()
	return ok && (*resource.Quantity)(at).UnmarshalJSON(value) == nil
}
