package objectjson

import (
	"encoding/json"
	"reflect"
	"sync"
	"unsafe"

	"clusterctl/daemons/libraries"
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
	if libraries.Selected {
		return json.Unmarshal(data, obj)
	}
	t := jsonText{data: data, cache: stringCaches.Get().(*stringCache)}
	defer stringCaches.Put(t.cache)
	if decoderOf(v.Type().Elem())(&t, v.UnsafePointer()) && t.isAtEnd() {
		return nil
	}
	v.Elem().SetZero()
	return json.Unmarshal(data, obj)
}

// decoder decodes a value to an address that holds a zero value. It is compiled for one type. It returns false for
// values that it leaves to encoding/json.
type decoder func(t *jsonText, at unsafe.Pointer) bool

var decoders sync.Map // reader by reflect.Type

// decoderOf returns the reader of a type. It compiles the type at the first call. A recursive type refers to its own
// reader by looking it up at run time.
func decoderOf(t reflect.Type) decoder {
	if r, ok := decoders.Load(t); ok {
		return r.(decoder)
	}
	r, _ := decoders.LoadOrStore(t, (&decoderMaker{}).newDecoder(t))
	return r.(decoder)
}

// decoderMaker compiles the readers of a type and of its parts.
type decoderMaker struct {
	compiling []reflect.Type // types that are being compiled
}

func (m *decoderMaker) newDecoder(t reflect.Type) decoder {
	for _, outer := range m.compiling {
		if outer == t {
			return func(from *jsonText, at unsafe.Pointer) bool { return decoderOf(t)(from, at) }
		}
	}
	if r, ok := decoders.Load(t); ok {
		return r.(decoder)
	}
	m.compiling = append(m.compiling, t)
	defer func() { m.compiling = m.compiling[:len(m.compiling)-1] }()
	if r := specialDecoder(t); r != nil {
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
	return standardDecoder(t)
}

// standardDecoder returns a reader that uses encoding/json.
func standardDecoder(t reflect.Type) decoder {
	return func(from *jsonText, at unsafe.Pointer) bool {
		value, ok := from.value()
		return ok && json.Unmarshal(value, reflect.NewAt(t, at).Interface()) == nil
	}
}

func (m *decoderMaker) pointer(t reflect.Type) decoder {
	of := t.Elem()
	inner := m.newDecoder(of)
	return func(from *jsonText, at unsafe.Pointer) bool {
		if from.null() {
			return true
		}
		v := reflect.New(of).UnsafePointer()
		*(*unsafe.Pointer)(at) = v
		return inner(from, v)
	}
}

func (m *decoderMaker) slice(t reflect.Type) decoder {
	if t.Elem().Kind() == reflect.Uint8 {
		return standardDecoder(t)
	}
	inner, size := m.newDecoder(t.Elem()), t.Elem().Size()
	return func(from *jsonText, at unsafe.Pointer) bool {
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
		s := (*sliceHeader)(at)
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
			if !from.take(',') {
				return false
			}
		}
	}
}

func (m *decoderMaker) mapping(t reflect.Type) decoder {
	if t.Key().Kind() != reflect.String || specialDecoder(t.Key()) != nil {
		return standardDecoder(t)
	}
	if t.Elem() == reflect.TypeFor[string]() && t.Key() == reflect.TypeFor[string]() {
		return readStrings
	}
	inner := m.newDecoder(t.Elem())
	return func(from *jsonText, at unsafe.Pointer) bool {
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
			if !ok || !from.take(':') {
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
			if !from.take(',') {
				return false
			}
		}
	}
}

// memberTarget is the target of a struct's member.
type memberTarget struct {
	name   string
	offset uintptr
	decode decoder
}

// structure returns the reader of a struct. It returns nil if the struct has something that API types do not have.
func (m *decoderMaker) structure(t reflect.Type) decoder {
	fields, ok := fieldsOf(t)
	if !ok || len(fields) > 64 {
		return nil
	}
	places := make([]memberTarget, len(fields))
	for i, f := range fields {
		places[i] = memberTarget{f.name, f.offset, m.newDecoder(f.typ)}
	}
	return func(from *jsonText, at unsafe.Pointer) bool {
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
			if !ok || !from.take(':') {
				return false
			}
			i := findMember(places, next, name)
			switch {
			case i < 0:
				if _, ok := from.value(); !ok || matchesFold(places, name) {
					return false
				}
			case seen&(1<<i) != 0: // a duplicate member would be decoded over the first value
				return false
			default:
				seen |= 1 << i
				next = i + 1
				if !places[i].decode(from, unsafe.Add(at, places[i].offset)) {
					return false
				}
			}
			if from.leave('}') {
				return true
			}
			if !from.take(',') {
				return false
			}
		}
	}
}

// findMember returns the index of the member with a name. It searches from next on first, because members usually
// follow the order of the struct.
func findMember(places []memberTarget, next int, name []byte) int {
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
