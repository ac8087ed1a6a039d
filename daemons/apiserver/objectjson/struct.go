package objectjson

import (
	"reflect"
	"strings"
	"unsafe"
)

// field is a field of a struct, or of a struct that is embedded in it.
type field struct {
	name    string
	offset  uintptr
	typ     reflect.Type
	options string // options of the json tag
}

// fieldsOf returns a struct's fields. It returns false if the struct has something that API types do not have.
func fieldsOf(t reflect.Type) ([]field, bool) {
	fields, ok := appendFieldsOf(nil, t, 0)
	seen := map[string]bool{}
	for _, f := range fields {
		if seen[f.name] {
			return nil, false // the rules for duplicate names are left to encoding/json
		}
		seen[f.name] = true
	}
	return fields, ok
}

func appendFieldsOf(to []field, t reflect.Type, offset uintptr) ([]field, bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if tag == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if f.Anonymous && name == "" {
			if f.Type.Kind() != reflect.Struct || specialEncoder(f.Type) != nil || specialDecoder(f.Type) != nil ||
				!f.IsExported() {
				return nil, false
			}
			var ok bool
			if to, ok = appendFieldsOf(to, f.Type, offset+f.Offset); !ok {
				return nil, false
			}
			continue
		}
		if !f.IsExported() {
			return nil, false
		}
		if name == "" {
			name = f.Name
		}
		for option := range strings.SplitSeq(options, ",") {
			switch option {
			case "", "inline", "omitempty", "omitzero":
			default:
				return nil, false
			}
		}
		to = append(to, field{name, offset + f.Offset, f.Type, options})
	}
	return to, true
}

// structMember is the encoding of a struct's field.
type structMember struct {
	quoted string // the quoted name and a colon
	name   string
	offset uintptr
	empty  func(unsafe.Pointer) bool // reports whether the field is omitted; nil if it never is
	encode encoder
}

// structure returns the step of a struct. It returns nil if the struct has something that API types do not have.
func (m *encoderMaker) structure(t reflect.Type) encoder {
	fields, ok := fieldsOf(t)
	if !ok {
		return nil
	}
	members := make([]structMember, len(fields))
	for i, f := range fields {
		members[i] = structMember{
			name:   f.name,
			quoted: string(appendString(nil, f.name)) + ":",
			offset: f.offset,
			encode: m.newEncoder(f.typ),
		}
		for option := range strings.SplitSeq(f.options, ",") {
			switch option {
			case "omitempty":
				members[i].empty = anyOf(members[i].empty, isEmpty(f.typ))
			case "omitzero":
				members[i].empty = anyOf(members[i].empty, isZero(f.typ))
			}
		}
	}
	return func(to []byte, at unsafe.Pointer) (_ []byte, err error) {
		to = append(to, '{')
		first := true
		for i := range members {
			f := &members[i]
			value := unsafe.Add(at, f.offset)
			if f.empty != nil && f.empty(value) {
				continue
			}
			if !first {
				to = append(to, ',')
			}
			first = false
			to = append(to, f.quoted...)
			if to, err = f.encode(to, value); err != nil {
				return to, wrapError(f.name, err)
			}
		}
		return append(to, '}'), nil
	}
}

func anyOf(a, b func(unsafe.Pointer) bool) func(unsafe.Pointer) bool {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	return func(at unsafe.Pointer) bool { return a(at) || b(at) }
}

// isEmpty returns a function that reports whether omitempty omits a value of the type; nil if it never does.
func isEmpty(t reflect.Type) func(unsafe.Pointer) bool {
	switch t.Kind() {
	case reflect.String:
		return func(at unsafe.Pointer) bool { return len(*(*string)(at)) == 0 }
	case reflect.Slice:
		return func(at unsafe.Pointer) bool { return (*sliceHeader)(at).len == 0 }
	case reflect.Pointer:
		return func(at unsafe.Pointer) bool { return *(*unsafe.Pointer)(at) == nil }
	case reflect.Bool:
		return func(at unsafe.Pointer) bool { return !*(*bool)(at) }
	case reflect.Int32:
		return func(at unsafe.Pointer) bool { return *(*int32)(at) == 0 }
	case reflect.Int64:
		return func(at unsafe.Pointer) bool { return *(*int64)(at) == 0 }
	case reflect.Map:
		return func(at unsafe.Pointer) bool {
			return *(*unsafe.Pointer)(at) == nil || reflect.NewAt(t, at).Elem().Len() == 0
		}
	case reflect.Array:
		if t.Len() > 0 {
			return nil
		}
		return func(unsafe.Pointer) bool { return true }
	case reflect.Struct:
		return nil
	}
	return func(at unsafe.Pointer) bool { return reflect.NewAt(t, at).Elem().IsZero() }
}

type zeroReporter interface{ IsZero() bool }

// isZero returns a function that reports whether omitzero omits a value of the type.
func isZero(t reflect.Type) func(unsafe.Pointer) bool {
	if t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface &&
		reflect.PointerTo(t).Implements(reflect.TypeFor[zeroReporter]()) {
		return func(at unsafe.Pointer) bool { return reflect.NewAt(t, at).Interface().(zeroReporter).IsZero() }
	}
	if t.Implements(reflect.TypeFor[zeroReporter]()) {
		return func(at unsafe.Pointer) bool {
			v := reflect.NewAt(t, at).Elem()
			return v.IsNil() || v.Interface().(zeroReporter).IsZero()
		}
	}
	return func(at unsafe.Pointer) bool { return reflect.NewAt(t, at).Elem().IsZero() }
}
