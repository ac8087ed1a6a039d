// Package objectjson encodes and reads objects as encoding/json does, at half the cost or less. What is encoded is the
// same to the byte, but that <, > and & stay what they are, since what is escaped takes six bytes of a store that has
// room for one and a half times what an object may be. An object's type is looked at once, and what it takes to encode
// and to read it is laid down as a list of steps over the object's memory; encoding/json looks at every value anew.
// Whatever is not usual in the API's types, or in a text that is read, is left to encoding/json.
package objectjson

import (
	"fmt"
	"reflect"
	"sync"
	"unsafe"
)

// Append appends the JSON of what obj points to.
func Append(to []byte, obj any) ([]byte, error) {
	v := reflect.ValueOf(obj)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		text, err := Marshal(obj)
		return append(to, text...), err
	}
	return stepOf(v.Type().Elem())(to, v.UnsafePointer())
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// mostKept is how large a buffer is kept for the next object.
const mostKept = 64 << 10

// With hands the JSON of what obj points to to use, whose it is until it returns.
func With(obj any, use func(text []byte) error) error {
	pooled := buffers.Get().(*[]byte)
	text, err := Append((*pooled)[:0], obj)
	if err == nil {
		err = use(text)
	}
	if cap(text) <= mostKept {
		*pooled = text[:0]
		buffers.Put(pooled)
	}
	return err
}

// step appends the JSON of the value at an address, whose type it was made for.
type step func(to []byte, at unsafe.Pointer) ([]byte, error)

var steps sync.Map // step by reflect.Type

// stepOf returns a type's step. Types may contain themselves: such a one is found by its type when it comes to that.
func stepOf(t reflect.Type) step {
	if s, ok := steps.Load(t); ok {
		return s.(step)
	}
	s, _ := steps.LoadOrStore(t, (&maker{}).make(t))
	return s.(step)
}

// maker makes the steps of a type and of what it consists of.
type maker struct {
	within []reflect.Type // what is being made
}

func (m *maker) make(t reflect.Type) step {
	for _, outer := range m.within {
		if outer == t {
			return func(to []byte, at unsafe.Pointer) ([]byte, error) { return stepOf(t)(to, at) }
		}
	}
	if s, ok := steps.Load(t); ok {
		return s.(step)
	}
	m.within = append(m.within, t)
	defer func() { m.within = m.within[:len(m.within)-1] }()
	if s := special(t); s != nil {
		return s
	}
	switch t.Kind() {
	case reflect.Bool:
		return appendBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return integer(t.Size())
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
	return standard(t)
}

// standard leaves a type to encoding/json.
func standard(t reflect.Type) step {
	return func(to []byte, at unsafe.Pointer) ([]byte, error) {
		text, err := Marshal(reflect.NewAt(t, at).Interface())
		return append(to, text...), err
	}
}

func (m *maker) pointer(t reflect.Type) step {
	inner := m.make(t.Elem())
	return func(to []byte, at unsafe.Pointer) ([]byte, error) {
		if at = *(*unsafe.Pointer)(at); at == nil {
			return append(to, "null"...), nil
		}
		return inner(to, at)
	}
}

// header is how a slice lies in memory.
type header struct {
	data     unsafe.Pointer
	len, cap int
}

func (m *maker) slice(t reflect.Type) step {
	if t.Elem().Kind() == reflect.Uint8 {
		if t.Elem() == reflect.TypeFor[byte]() {
			return appendBase64
		}
		return standard(t)
	}
	inner, size := m.make(t.Elem()), t.Elem().Size()
	return func(to []byte, at unsafe.Pointer) (_ []byte, err error) {
		s := (*header)(at)
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

// wrap says where in an object something could not be encoded.
func wrap(name string, err error) error { return fmt.Errorf("%s: %w", name, err) }
