package objectjson

import (
	"reflect"
	"strings"
	"unsafe"
)

// member is one of a struct's.
type member struct {
	quoted string // its name and a colon
	name   string
	offset uintptr
	empty  func(unsafe.Pointer) bool // whether it is left out; nil: it never is
	step   step
}

// structure returns nil for a struct with something in it that the API's types do not have.
func (m *maker) structure(t reflect.Type) step {
	members, ok := m.members(t, 0, nil)
	if !ok {
		return nil
	}
	seen := map[string]bool{}
	for _, member := range members {
		if seen[member.name] {
			return nil // which of them counts is a long story
		}
		seen[member.name] = true
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
			if to, err = f.step(to, value); err != nil {
				return to, wrap(f.name, err)
			}
		}
		return append(to, '}'), nil
	}
}

// members collects those of a struct at an offset; embedded ones' are its own.
func (m *maker) members(t reflect.Type, offset uintptr, to []member) ([]member, bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if tag == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if f.Anonymous && name == "" {
			if f.Type.Kind() != reflect.Struct || special(f.Type) != nil || !f.IsExported() {
				return nil, false
			}
			var ok bool
			if to, ok = m.members(f.Type, offset+f.Offset, to); !ok {
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
		made := member{name: name, quoted: string(appendString(nil, name)) + ":", offset: offset + f.Offset, step: m.make(f.Type)}
		for option := range strings.SplitSeq(options, ",") {
			switch option {
			case "", "inline": // which says nothing
			case "omitempty":
				made.empty = either(made.empty, isEmpty(f.Type))
			case "omitzero":
				made.empty = either(made.empty, isZero(f.Type))
			default:
				return nil, false
			}
		}
		to = append(to, made)
	}
	return to, true
}

func either(a, b func(unsafe.Pointer) bool) func(unsafe.Pointer) bool {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	return func(at unsafe.Pointer) bool { return a(at) || b(at) }
}

// isEmpty is what omitempty leaves out of a type; nil: nothing.
func isEmpty(t reflect.Type) func(unsafe.Pointer) bool {
	switch t.Kind() {
	case reflect.String:
		return func(at unsafe.Pointer) bool { return len(*(*string)(at)) == 0 }
	case reflect.Slice:
		return func(at unsafe.Pointer) bool { return (*header)(at).len == 0 }
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

type zeroer interface{ IsZero() bool }

// isZero is what omitzero leaves out of a type.
func isZero(t reflect.Type) func(unsafe.Pointer) bool {
	if t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface && reflect.PointerTo(t).Implements(reflect.TypeFor[zeroer]()) {
		return func(at unsafe.Pointer) bool { return reflect.NewAt(t, at).Interface().(zeroer).IsZero() }
	}
	if t.Implements(reflect.TypeFor[zeroer]()) {
		return func(at unsafe.Pointer) bool {
			v := reflect.NewAt(t, at).Elem()
			return v.IsNil() || v.Interface().(zeroer).IsZero()
		}
	}
	return func(at unsafe.Pointer) bool { return reflect.NewAt(t, at).Elem().IsZero() }
}
