package objectjson

import (
	"encoding/json"
	"reflect"
	"sync"
	"unsafe"
)

// Read decodes JSON into the struct that obj points to, as json.Unmarshal does with a new object. The old content is
// lost. If the text has anything unusual, encoding/json decodes the whole text and reports its errors.
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

// reader decodes a value to an address that holds a zero value. It is compiled for one type. It returns false for
// values that it leaves to encoding/json.
type reader func(t *text, at unsafe.Pointer) bool

var readers sync.Map // reader by reflect.Type

// readerOf returns the reader of a type. It compiles the type at the first call. A recursive type refers to its own
// reader by looking it up at run time.
func readerOf(t reflect.Type) reader {
	if r, ok := readers.Load(t); ok {
		return r.(reader)
	}
	r, _ := readers.LoadOrStore(t, (&readerMaker{}).make(t))
	return r.(reader)
}

// readerMaker compiles the readers of a type and of its parts.
type readerMaker struct {
	within []reflect.Type // types that are being compiled
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

// standardReader returns a reader that uses encoding/json.
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

// place is the target of a struct's member.
type place struct {
	name   string
	offset uintptr
	read   reader
}

// structure returns the reader of a struct. It returns nil if the struct has something that API types do not have.
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
			case seen&(1<<i) != 0: // a duplicate member would be decoded over the first value
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

// find returns the index of the member with a name. It searches from next on first, because members usually follow the
// order of the struct.
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
