package ownership

import (
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// fieldType returns the type of a map's entry, and whether the schema names it. The merge is unsupported if the schema
// does not allow the entry.
func (m *linearMerge) fieldType(t *schema.Map, name string) (ref schema.TypeRef, isField bool) {
	if field, ok := t.FindField(name); ok {
		return field.Type, true
	}
	if t.ElementType == (schema.TypeRef{}) {
		m.isUnsupported = true
	}
	return t.ElementType, false
}

// fieldElement returns the path element of a field. Names of the schema's fields occur often.
func (m *linearMerge) fieldElement(name string, isField bool) string {
	if element, ok := m.elements[name]; ok {
		return element
	}
	if !isPlain(name) {
		m.isUnsupported = true
	}
	element := "f:" + name
	if isField {
		m.elements[name] = element
	}
	return element
}

// itemKey identifies an item of an associative list.
type itemKey struct {
	text   string // encoded path element
	values []any  // values of the key fields in the order of their names, or the item itself
}

// listKeys returns the keys of a list's items, and the index of each.
func (m *linearMerge) listKeys(t *schema.List, list []any) (keys []itemKey, index map[string]int) {
	if t.ElementRelationship != schema.Associative {
		m.isUnsupported = true
	}
	names, defaults := m.keyFields(t)
	index = make(map[string]int, len(list))
	keys = make([]itemKey, len(list))
	all := make([]any, len(list)*max(len(names), 1))
	var text []byte
	for i, item := range list {
		if m.isUnsupported {
			return nil, nil
		}
		values := all[:max(len(names), 1)]
		all = all[len(values):]
		if len(names) == 0 {
			values[0] = item
			text = m.appendScalar(append(text[:0], "v:"...), item)
		} else {
			text = m.appendKey(text[:0], names, defaults, item, values)
		}
		key := string(text)
		if _, isDuplicate := index[key]; isDuplicate {
			m.isUnsupported = true
		}
		keys[i], index[key] = itemKey{key, values}, i
	}
	return keys, index
}

// keyFields returns the sorted names of the fields that identify a list's items, and the defaults of these fields.
func (m *linearMerge) keyFields(t *schema.List) (names []string, defaults []any) {
	names = slices.Sorted(slices.Values(t.Keys))
	defaults = make([]any, len(names))
	if len(names) == 0 {
		return nil, nil
	}
	atom, ok := m.schema.Resolve(t.ElementType)
	if !ok || atom.Map == nil {
		m.isUnsupported = true
		return names, defaults
	}
	for i, name := range names {
		field, _ := atom.Map.FindField(name)
		defaults[i] = field.Default
		if number, ok := field.Default.(float64); ok && number == float64(int32(number)) {
			defaults[i] = int64(number) // schemas of custom resources have no other numbers
		}
		if !isPlain(name) {
			m.isUnsupported = true
		}
	}
	return names, defaults
}

// appendKey appends the path element of an item, and sets values to the values of its key fields. An item without
// fields, whose keys all have defaults, is unsupported: the library removes it when it is declared again.
func (m *linearMerge) appendKey(text []byte, names []string, defaults []any, item any, values []any) []byte {
	fields, ok := item.(map[string]any)
	if !ok || len(fields) == 0 {
		m.isUnsupported = true
		return text
	}
	text = append(text, "k:{"...)
	for i, name := range names {
		v, exists := fields[name]
		if !exists {
			v = defaults[i] // without a default, appendScalar refuses it
		}
		if i > 0 {
			text = append(text, ',')
		}
		values[i] = v
		text = m.appendScalar(append(append(append(text, '"'), name...), '"', ':'), v)
	}
	return append(text, '}')
}

// appendScalar appends the JSON encoding of a value that identifies an item. Equal values have the same encoding, so
// floating-point numbers are unsupported: 1.0 equals 1.
func (m *linearMerge) appendScalar(out []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		if !isPlain(v) {
			m.isUnsupported = true
		}
		return append(append(append(out, '"'), v...), '"')
	case int64:
		return strconv.AppendInt(out, v, 10)
	case bool:
		return strconv.AppendBool(out, v)
	}
	m.isUnsupported = true
	return out
}

// compareScalars orders values as path elements are ordered.
func compareScalars(a, b any) int {
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return strings.Compare(x, y)
		}
	}
	return value.Compare(value.NewValueInterface(a), value.NewValueInterface(b))
}

// validate makes the merge unsupported unless a value is valid and its lists have unique items.
func (m *linearMerge) validate(ref schema.TypeRef, v any) {
	if v == nil || m.isUnsupported {
		return
	}
	atom, ok := m.schema.Resolve(ref)
	if !ok {
		m.isUnsupported = true
		return
	}
	switch v := v.(type) {
	case map[string]any:
		if atom.Map == nil {
			m.isUnsupported = true
			return
		}
		for name, entry := range v {
			field, _ := m.fieldType(atom.Map, name)
			m.validate(field, entry)
		}
	case []any:
		if atom.List == nil {
			m.isUnsupported = true
			return
		}
		if atom.List.ElementRelationship == schema.Associative {
			m.listKeys(atom.List, v)
		}
		for _, item := range v {
			m.validate(atom.List.ElementType, item)
		}
	default:
		if !isScalar(atom.Scalar, v) {
			m.isUnsupported = true
		}
	}
}

// isScalar reports whether a value has a scalar type.
func isScalar(t *schema.Scalar, v any) bool {
	if t == nil {
		return false
	}
	scalar := *t
	switch v.(type) {
	case string:
		return scalar == schema.String || scalar == schema.Untyped
	case bool:
		return scalar == schema.Boolean || scalar == schema.Untyped
	case int64, float64:
		return scalar == schema.Numeric || scalar == schema.Untyped
	}
	return false
}

// equalValues reports whether two values are equal as the library compares them.
func equalValues(a, b any) bool {
	switch x := a.(type) {
	case string:
		y, ok := b.(string)
		return ok && x == y
	case bool:
		y, ok := b.(bool)
		return ok && x == y
	case int64:
		y, ok := b.(int64)
		if ok {
			return x == y
		}
	}
	return value.Equals(value.NewValueInterface(a), value.NewValueInterface(b))
}
