package objectjson

import (
	"encoding/json"
	"reflect"
	"sync"
	"unsafe"
)

// Read reads what JSON says into what obj points to, as json.Unmarshal does into a new object; what obj held before is
// forgotten. What is not usual in the texts of the API's objects is left to encoding/json, which reads the whole text
// then and says what is wrong with it.
func Read(data []byte, obj any) error {
	v := reflect.ValueOf(obj)
	if _, own := obj.(json.Unmarshaler); own || v.Kind() != reflect.Pointer || v.IsNil() ||
		v.Elem().Kind() != reflect.Struct {
		return json.Unmarshal(data, obj)
	}
	v.Elem().SetZero()
	t := text{data: data, known: lately.Get().(*words)}
	defer lately.Put(t.known)
	if readerOf(v.Type().Elem())(&t, v.UnsafePointer()) && t.ended() {
		return nil
	}
	v.Elem().SetZero()
	return json.Unmarshal(data, obj)
}

// reader reads a value into an address, whose type it was made for and where a zero value is. It returns false for what
// it leaves to encoding/json.
type reader func(t *text, at unsafe.Pointer) bool

var readers sync.Map // reader by reflect.Type

// readerOf returns a type's reader. Types may contain themselves: such a one is found by its type when it comes to
// that.
func readerOf(t reflect.Type) reader {
	if r, ok := readers.Load(t); ok {
		return r.(reader)
	}
	r, _ := readers.LoadOrStore(t, (&readerMaker{}).make(t))
	return r.(reader)
}

// readerMaker makes the readers of a type and of what it consists of.
type readerMaker struct {
	within []reflect.Type // what is being made
}

func (m *readerMaker) make(t reflect.Type) reader {
	for _, outer := range m.within {
		if outer == t {
			return func(from *text, at unsafe.Pointer) bool { return readerOf(t)(from, at) }
		}
	}
	if r, ok := readers.Load(t); ok {
		return r.(reader)
	}
	m.within = append(m.within, t)
	defer func() { m.within = m.within[:len(m.within)-1] }()
	if r := specialReader(t); r != nil {
		return r
	}
	switch t.Kind() {
	case reflect.Bool:
		return readBool
	case reflect.Int32:
		return readInt32
	case reflect.Int64:
		return readInt64
	case reflect.String:
		return readString
	case reflect.Pointer:
		return m.pointer(t)
	case reflect.Slice:
		return m.slice(t)
	case reflect.Map:
		return m.mapping(t)
	case reflect.Struct:
		if r := m.structure(t); r != nil {
			return r
		}
	}
	return standardReader(t)
}

// standardReader leaves a value to encoding/json.
func standardReader(t reflect.Type) reader {
	return func(from *text, at unsafe.Pointer) bool {
		value, ok := from.value()
		return ok && json.Unmarshal(value, reflect.NewAt(t, at).Interface()) == nil
	}
}

func (m *readerMaker) pointer(t reflect.Type) reader {
	of := t.Elem()
	inner := m.make(of)
	return func(from *text, at unsafe.Pointer) bool {
		if from.null() {
			return true
		}
		v := reflect.New(of).UnsafePointer()
		*(*unsafe.Pointer)(at) = v
		return inner(from, v)
	}
}

func (m *readerMaker) slice(t reflect.Type) reader {
	if t.Elem().Kind() == reflect.Uint8 {
		return standardReader(t)
	}
	inner, size := m.make(t.Elem()), t.Elem().Size()
	return func(from *text, at unsafe.Pointer) bool {
		if from.null() {
			return true
		}
		if !from.enter('[') {
			return false
		}
		v := reflect.NewAt(t, at).Elem()
		if from.leave(']') {
			v.Set(reflect.MakeSlice(t, 0, 0))
			return true
		}
		s := (*header)(at)
		for {
			if s.len == s.cap {
				v.Grow(1)
			}
			v.SetLen(s.len + 1)
			if !inner(from, unsafe.Add(s.data, uintptr(s.len-1)*size)) {
				return false
			}
			if from.leave(']') {
				return true
			}
			if !from.is(',') {
				return false
			}
		}
	}
}

func (m *readerMaker) mapping(t reflect.Type) reader {
	if t.Key().Kind() != reflect.String || specialReader(t.Key()) != nil {
		return standardReader(t)
	}
	if t.Elem() == reflect.TypeFor[string]() && t.Key() == reflect.TypeFor[string]() {
		return readStrings
	}
	inner := m.make(t.Elem())
	return func(from *text, at unsafe.Pointer) bool {
		if from.null() {
			return true
		}
		if !from.enter('{') {
			return false
		}
		v := reflect.NewAt(t, at).Elem()
		v.Set(reflect.MakeMap(t))
		if from.leave('}') {
			return true
		}
		for {
			name, ok := from.string()
			if !ok || !from.is(':') {
				return false
			}
			key, value := reflect.New(t.Key()).Elem(), reflect.New(t.Elem())
			key.SetString(name)
			if !inner(from, value.UnsafePointer()) {
				return false
			}
			v.SetMapIndex(key, value.Elem())
			if from.leave('}') {
				return true
			}
			if !from.is(',') {
				return false
			}
		}
	}
}

// place is where a struct's member is read to.
type place struct {
	name   string
	offset uintptr
	read   reader
}

// structure returns nil for a struct with something in it that the API's types do not have.
func (m *readerMaker) structure(t reflect.Type) reader {
	fields, ok := fieldsOf(t)
	if !ok || len(fields) > 64 {
		return nil
	}
	places := make([]place, len(fields))
	for i, f := range fields {
		places[i] = place{f.name, f.offset, m.make(f.of)}
	}
	return func(from *text, at unsafe.Pointer) bool {
		if from.null() {
			return true
		}
		if !from.enter('{') {
			return false
		}
		if from.leave('}') {
			return true
		}
		var seen uint64
		next := 0
		for {
			name, ok := from.name()
			if !ok || !from.is(':') {
				return false
			}
			i := find(places, next, name)
			switch {
			case i < 0:
				if _, ok := from.value(); !ok || like(places, name) {
					return false
				}
			case seen&(1<<i) != 0: // it counts what was there before
				return false
			default:
				seen |= 1 << i
				next = i + 1
				if !places[i].read(from, unsafe.Add(at, places[i].offset)) {
					return false
				}
			}
			if from.leave('}') {
				return true
			}
			if !from.is(',') {
				return false
			}
		}
	}
}

// find finds a member by name, and those that follow the one before first: objects are mostly written in their members'
// order.
func find(places []place, next int, name []byte) int {
	for i := next; i < len(places); i++ {
		if places[i].name == string(name) {
			return i
		}
	}
	for i := range next {
		if places[i].name == string(name) {
			return i
		}
	}
	return -1
}
