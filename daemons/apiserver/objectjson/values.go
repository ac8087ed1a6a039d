package objectjson

import (
	"encoding"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// specialEncoder returns the step of a type that encodes itself; nil for other types.
func specialEncoder(t reflect.Type) encoder {
	if t.Kind() == reflect.Pointer {
		return nil // the type that it points to is checked instead
	}
	switch t {
	case reflect.TypeFor[metav1.Time]():
		return appendTime
	case reflect.TypeFor[intstr.IntOrString]():
		return appendIntOrString
	case reflect.TypeFor[metav1.FieldsV1]():
		return appendFields
	case reflect.TypeFor[resource.Quantity]():
		return appendQuantity
	}
	for _, own := range []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()} {
		if t.Implements(own) || reflect.PointerTo(t).Implements(own) {
			return standardEncoder(t)
		}
	}
	return nil
}

func appendBool(to []byte, at unsafe.Pointer) ([]byte, error) {
	return strconv.AppendBool(to, *(*bool)(at)), nil
}

func integerEncoder(size uintptr) encoder {
	switch size {
	case 1:
		return func(to []byte, at unsafe.Pointer) ([]byte, error) {
			return strconv.AppendInt(to, int64(*(*int8)(at)), 10), nil
		}
	case 2:
		return func(to []byte, at unsafe.Pointer) ([]byte, error) {
			return strconv.AppendInt(to, int64(*(*int16)(at)), 10), nil
		}
	case 4:
		return func(to []byte, at unsafe.Pointer) ([]byte, error) {
			return strconv.AppendInt(to, int64(*(*int32)(at)), 10), nil
		}
	}
	return func(to []byte, at unsafe.Pointer) ([]byte, error) {
		return strconv.AppendInt(to, *(*int64)(at), 10), nil
	}
}

// unescapedBytes are the bytes that need no escape in a string.
var unescapedBytes = func() (plain [256]bool) {
	for c := ' '; c < 0x7f; c++ {
		plain[c] = c != '"' && c != '\\'
	}
	return plain
}()

const hexadecimal = "0123456789abcdef"

// appendString appends a quoted string. Like encoding/json, it escapes U+2028 and U+2029, which end a line in
// JavaScript and YAML.
func appendString(to []byte, s string) []byte {
	to = append(to, '"')
	done := 0 // everything before is written
	for i := 0; i < len(s); {
		c := s[i]
		if unescapedBytes[c] {
			i++
			continue
		}
		size := 1
		escaped := ""
		switch {
		case c == '"':
			escaped = `\"`
		case c == '\\':
			escaped = `\\`
		case c == '\n':
			escaped = `\n`
		case c == '\t':
			escaped = `\t`
		case c == '\r':
			escaped = `\r`
		case c == '\b':
			escaped = `\b`
		case c == '\f':
			escaped = `\f`
		case c == 0x7f:
		case c < utf8.RuneSelf:
			to = append(append(to, s[done:i]...), '\\', 'u', '0', '0', hexadecimal[c>>4], hexadecimal[c&15])
			done = i + 1
		default:
			var r rune
			switch r, size = utf8.DecodeRuneInString(s[i:]); {
			case r == utf8.RuneError && size == 1:
				escaped = `\ufffd`
			case r == '\u2028':
				escaped = `\u2028`
			case r == '\u2029':
				escaped = `\u2029`
			}
		}
		if escaped != "" {
			to = append(append(to, s[done:i]...), escaped...)
			done = i + size
		}
		i += size
	}
	return append(append(to, s[done:]...), '"')
}

// appendFields appends the managed fields unchanged if they are compact JSON in the usual form. Others go through
// encoding/json.
func appendFields(to []byte, at unsafe.Pointer) ([]byte, error) {
	raw := (*metav1.FieldsV1)(at).Raw
	for i, c := range raw {
		switch {
		case unescapedBytes[c] && c != ' ' || c == '"':
		case c == '\\' && i+1 < len(raw) && raw[i+1] != 'u':
		default:
			return standardEncoder(reflect.TypeFor[metav1.FieldsV1]())(to, at)
		}
	}
	if !isValid(raw) {
		return standardEncoder(reflect.TypeFor[metav1.FieldsV1]())(to, at)
	}
	return append(to, raw...), nil
}

func appendBase64(to []byte, at unsafe.Pointer) ([]byte, error) {
	data := *(*[]byte)(at)
	if data == nil {
		return append(to, "null"...), nil
	}
	to = append(to, '"')
	to = base64.StdEncoding.AppendEncode(to, data)
	return append(to, '"'), nil
}

func appendTime(to []byte, at unsafe.Pointer) ([]byte, error) {
	t := (*metav1.Time)(at)
	if t.IsZero() {
		return append(to, "null"...), nil
	}
	to = append(to, '"')
	to = t.UTC().AppendFormat(to, "2006-01-02T15:04:05Z07:00")
	return append(to, '"'), nil
}

func appendIntOrString(to []byte, at unsafe.Pointer) ([]byte, error) {
	v := (*intstr.IntOrString)(at)
	switch v.Type {
	case intstr.Int:
		return strconv.AppendInt(to, int64(v.IntVal), 10), nil
	case intstr.String:
		return appendString(to, v.StrVal), nil
	}
	text, err := Marshal(v)
	return append(to, text...), err
}

func appendQuantity(to []byte, at unsafe.Pointer) ([]byte, error) {
	text, err := (*resource.Quantity)(at).MarshalJSON()
	return append(to, text...), err
}

// mapping returns the step of a map, which encodes it in the order of its keys.
func (m *encoderMaker) mapping(t reflect.Type) encoder {
	if t.Key().Kind() != reflect.String || specialEncoder(t.Key()) != nil {
		return standardEncoder(t)
	}
	if t.Elem().Kind() == reflect.String && specialEncoder(t.Elem()) == nil {
		return appendStrings
	}
	inner := m.newEncoder(t.Elem())
	return func(to []byte, at unsafe.Pointer) (_ []byte, err error) {
		v := reflect.NewAt(t, at).Elem()
		if v.IsNil() {
			return append(to, "null"...), nil
		}
		type pair struct {
			key   string
			value reflect.Value // addressable, unlike the values of a map
		}
		pairs := make([]pair, 0, v.Len())
		for each := v.MapRange(); each.Next(); {
			value := reflect.New(t.Elem())
			value.Elem().Set(each.Value())
			pairs = append(pairs, pair{each.Key().String(), value})
		}
		slices.SortFunc(pairs, func(a, b pair) int { return strings.Compare(a.key, b.key) })
		to = append(to, '{')
		for i, p := range pairs {
			if i > 0 {
				to = append(to, ',')
			}
			to = append(appendString(to, p.key), ':')
			if to, err = inner(to, p.value.UnsafePointer()); err != nil {
				return to, wrapError(p.key, err)
			}
		}
		return append(to, '}'), nil
	}
}

// appendStrings encodes any type of map from strings to strings.
func appendStrings(to []byte, at unsafe.Pointer) ([]byte, error) {
	v := *(*map[string]string)(at)
	if v == nil {
		return append(to, "null"...), nil
	}
	var few [16]string
	keys := few[:0]
	for key := range v {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	to = append(to, '{')
	for i, key := range keys {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(appendString(to, key), ':')
		to = appendString(to, v[key])
	}
	return append(to, '}'), nil
}
