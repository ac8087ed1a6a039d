// Package objectjson encodes and decodes API objects as encoding/json does, at half the cost or less. The encoding is
// identical, except that <, > and & are not escaped. Escapes take six bytes each, and the store has room for only one
// and a half times the maximum size of an object. The package inspects each type once and compiles it to a list of
// steps over the object's memory, whereas encoding/json inspects every value again. Anything unusual, in the types or
// in a text to decode, is left to encoding/json.
package objectjson

import (
	"fmt"
	"reflect"
	"sync"
	"unsafe"

	"clusterctl/daemons/libraries"
)

// Append appends the JSON of the struct that obj points to.
func Append(to []byte, obj any) ([]byte, error) {
	v := reflect.ValueOf(obj)
	if libraries.Selected || v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		text, err := Marshal(obj)
		return append(to, text...), err
	}
	return encoderOf(v.Type().Elem())(to, v.UnsafePointer())
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// maxPooledBuffer is the largest buffer, in bytes, that is kept for later objects.
const maxPooledBuffer = 64 << 10

// With calls use with the JSON of the struct that obj points to. The JSON is valid until use returns.
func With(obj any, use func(text []byte) error) error {
	pooled := buffers.Get().(*[]byte)
	text, err := Append((*pooled)[:0], obj)
	if err == nil {
		err = use(text)
	}
	if cap(text) <= maxPooledBuffer {
		*pooled = text[:0]
		buffers.Put(pooled)
	}
	return err
}

// encoder appends the JSON of the value at an address. It is compiled for one type.
type encoder func(to []byte, at unsafe.Pointer) ([]byte, error)

var encoders sync.Map // step by reflect.Type

// encoderOf returns the step of a type. It compiles the type at the first call. A recursive type refers to its own step
// by looking it up at run time.
func encoderOf(t reflect.Type) encoder {
	if s, ok := encoders.Load(t); ok {
		return s.(encoder)
	}
	s, _ := encoders.LoadOrStore(t, (&encoderMaker{}).newEncoder(t))
	return s.(encoder)
}

// encoderMaker compiles the steps of a type and of its parts.
type encoderMaker struct {
	compiling []reflect.Type // types that are being compiled
}

func (m *encoderMaker) newEncoder(t reflect.Type) encoder {
	for _, outer := range m.compiling {
		if outer == t {
			return func(to []byte, at unsafe.Pointer) ([]byte, error) { return encoderOf(t)(to, at) }
		}
	}
	if s, ok := encoders.Load(t); ok {
		return s.(encoder)
	}
	m.compiling = append(m.compiling, t)
	defer func() { m.compiling = m.compiling[:len(m.compiling)-1] }()
	if s := specialEncoder(t); s != nil {
		return s
	}
	switch t.Kind() {
	case reflect.Bool:
		return appendBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return integerEncoder(t.Size())
	case reflect.String:
		return func(to []byte, at unsafe.Pointer) ([]byte, error) { return appendString(to, *(*string)(at)), nil }
	case reflect.Pointer:
		return m.pointer(t)
	case reflect.Slice:
		return m.slice(t)
	case reflect.Map:
		return m.mapping(t)
	case reflect.Struct:
		if s := m.structure(t); s != nil {
			return s
		}
	}
	return standardEncoder(t)
}

// standardEncoder returns a step that uses encoding/json.
func standardEncoder(t reflect.Type) encoder {
	return func(to []byte, at unsafe.Pointer) ([]byte, error) {
		text, err := Marshal(reflect.NewAt(t, at).Interface())
		return append(to, text...), err
	}
}

func (m *encoderMaker) pointer(t reflect.Type) encoder {
	inner := m.newEncoder(t.Elem())
	return func(to []byte, at unsafe.Pointer) ([]byte, error) {
		if at = *(*unsafe.Pointer)(at); at == nil {
			return append(to, "null"...), nil
		}
		return inner(to, at)
	}
}

// sliceHeader is the memory layout of a slice.
type sliceHeader struct {
	data     unsafe.Pointer
	len, cap int
}

func (m *encoderMaker) slice(t reflect.Type) encoder {
	if t.Elem().Kind() == reflect.Uint8 {
		if t.Elem() == reflect.TypeFor[byte]() {
			return appendBase64
		}
		return standardEncoder(t)
	}
	inner, size := m.newEncoder(t.Elem()), t.Elem().Size()
	return func(to []byte, at unsafe.Pointer) (_ []byte, err error) {
		s := (*sliceHeader)(at)
		if s.data == nil {
			return append(to, "null"...), nil
		}
		to = append(to, '[')
		for i := range s.len {
			if i > 0 {
				to = append(to, ',')
			}
			if to, err = inner(to, unsafe.Add(s.data, uintptr(i)*size)); err != nil {
				return to, err
			}
		}
		return append(to, ']'), nil
	}
}

// wrapError adds the name of the member that could not be encoded to an error.
func wrapError(name string, err error) error { return fmt.Errorf("%s: %w", name, err) }
