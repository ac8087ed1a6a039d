package quantity

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
)

// maxDigits is the number of digits in a row from which a quantity is looked at.
const maxDigits = 64

// mayHaveHugeQuantity reports whether a body may have a huge quantity: long digits or a long exponent anywhere. It is
// fast, because it reads every body of a type with quantities.
func mayHaveHugeQuantity(data []byte) bool {
	digits := 0
	for i, c := range data {
		switch {
		case c >= '0' && c <= '9' || c == '.':
			if digits++; digits > maxDigits {
				return true
			}
			continue
		case c|0x20 == 'e' && digits > 0 && hasLongExponent(data[i+1:]):
			return true
		case c == '\\' && isEscapedDigit(data[i+1:]):
			return true
		}
		digits = 0
	}
	return false
}

// hasLongExponent reports whether text begins with an exponent of more than three digits.
func hasLongExponent(text []byte) bool {
	if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
		text = text[1:]
	}
	if len(text) > 0 && text[0] == '\\' { // the rest may be escaped
		return true
	}
	for i := range 4 {
		if i == len(text) || (text[i] < '0' || text[i] > '9') && text[i] != '\\' {
			return false
		}
	}
	return true
}

// isEscapedDigit reports whether text, which follows a backslash, is the rest of the escape of a character that a
// quantity can have: a sign, a point, a digit, or the letter E.
func isEscapedDigit(text []byte) bool {
	if len(text) < 5 || text[0] != 'u' {
		return false
	}
	c, err := strconv.ParseUint(string(text[1:5]), 16, 16)
	return err == nil && (c >= '0' && c <= '9' || c == '.' || c == '-' || c == '+' || c|0x20 == 'e')
}

var quantityType = reflect.TypeFor[resource.Quantity]()

// typesWithQuantities remembers which types have quantities.
var typesWithQuantities sync.Map // from reflect.Type to bool

// hasQuantities reports whether values of a type have quantities.
func hasQuantities(t reflect.Type) bool {
	if cached, ok := typesWithQuantities.Load(t); ok {
		return cached.(bool)
	}
	seen := map[reflect.Type]bool{}
	var search func(t reflect.Type) bool
	search = func(t reflect.Type) bool {
		t = elementOf(t)
		if t == quantityType {
			return true
		}
		if seen[t] || t.Kind() != reflect.Struct {
			return false
		}
		seen[t] = true
		for i := range t.NumField() {
			if search(t.Field(i).Type) {
				return true
			}
		}
		return false
	}
	has := search(t)
	typesWithQuantities.Store(t, has)
	return has
}

// elementOf returns the type of what pointers, lists and maps contain.
func elementOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	return t
}

// Check returns Err if a JSON document of the type of obj has a huge quantity. It accepts documents that are not valid.
func Check(data []byte, obj any) error {
	t := reflect.TypeOf(obj)
	if !hasQuantities(t) || !mayHaveHugeQuantity(data) {
		return nil
	}
	w := jsonWalk{json.NewDecoder(bytes.NewReader(data))}
	w.UseNumber()
	if err := w.value(t, 0); errors.Is(err, Err) {
		return err
	}
	return nil // the decoder reports other errors
}

// jsonWalk walks through a document. Decoding it into a map would hide names that occur twice.
type jsonWalk struct{ *json.Decoder }

// maxWalkDepth is a depth that the decoder refuses.
const maxWalkDepth = 10_001

var errTooDeep = errors.New("the document is too deep")

// value walks through a value of a type, which is nil if it is not known.
func (w jsonWalk) value(t reflect.Type, depth int) error {
	if depth > maxWalkDepth {
		return errTooDeep
	}
	token, err := w.Token()
	if err != nil {
		return err
	}
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch v := token.(type) {
	case string:
		return checkQuantity(t, v)
	case json.Number:
		return checkQuantity(t, v.String())
	case json.Delim:
		if err := w.members(v, t, depth); err != nil {
			return err
		}
		_, err := w.Token() // the end
		return err
	}
	return nil
}

func checkQuantity(t reflect.Type, text string) error {
	if t == quantityType && IsHuge(text) {
		return Err
	}
	return nil
}

// members walks through the members of an object or a list.
func (w jsonWalk) members(begin json.Delim, t reflect.Type, depth int) error {
	for w.More() {
		var member reflect.Type
		if begin == '{' {
			name, err := w.Token()
			if err != nil {
				return err
			}
			text, _ := name.(string)
			member = memberOf(t, text)
		} else if t != nil && t.Kind() == reflect.Slice {
			member = t.Elem()
		}
		if err := w.value(member, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// memberOf returns the type of a member of an object, or nil.
func memberOf(t reflect.Type, name string) reflect.Type {
	if t == nil || t == quantityType {
		return nil
	}
	switch t.Kind() {
	case reflect.Map:
		return t.Elem()
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if tag == name && tag != "" {
				return f.Type
			}
			if f.Anonymous && tag == "" {
				if member := memberOf(elementOf(f.Type), name); member != nil {
					return member
				}
			}
		}
	}
	return nil
}

// CheckFields is Check for the fields of an object without a Go type.
func CheckFields(fields map[string]any, obj any) error {
	t := reflect.TypeOf(obj)
	if !hasQuantities(t) {
		return nil
	}
	return checkFields(t, fields)
}

func checkFields(t reflect.Type, value any) error {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil {
		return nil
	}
	switch v := value.(type) {
	case string:
		return checkQuantity(t, v)
	case map[string]any:
		for name, member := range v {
			if err := checkFields(memberOf(t, name), member); err != nil {
				return err
			}
		}
	case []any:
		if t.Kind() != reflect.Slice {
			return nil
		}
		for _, item := range v {
			if err := checkFields(t.Elem(), item); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckMessage is Check for a protobuf message.
func CheckMessage(message []byte, obj any) error {
	t := reflect.TypeOf(obj)
	if !hasQuantities(t) || !mayHaveHugeQuantity(message) {
		return nil
	}
	return checkMessage(message, elementOf(t), 0)
}

// checkMessage walks through the message of a type. Message fields of a type have their numbers in tags. A quantity
// has its text in field 1, and the entry of a map has its value in field 2.
func checkMessage(data []byte, t reflect.Type, depth int) error {
	for len(data) > 0 && depth <= maxWalkDepth {
		tag, n := varint(data)
		if n == 0 {
			return nil // the decoder reports it
		}
		data = data[n:]
		isValid := true
		switch tag & 7 {
		case 0:
			_, n = varint(data)
			isValid = n > 0
		case 1:
			n = 8
		case 5:
			n = 4
		case 2:
			size, head := varint(data)
			if head == 0 || size > uint64(len(data)-head) {
				return nil
			}
			n = head + int(size)
			if err := checkMessageField(data[head:n], t, int(int32(tag>>3)), depth); err != nil {
				return err
			}
		case 3, 4: // a group, whose fields are checked as if they were of this message
			n = 0
		default:
			isValid = false
		}
		if !isValid || n > len(data) {
			return nil
		}
		data = data[n:]
	}
	return nil
}

// varint reads a number, and returns how many bytes it has, or 0 if it has no end. Like the decoders of messages, and
// unlike the standard library, it ignores bits above the 64th.
func varint(data []byte) (value uint64, n int) {
	for i := 0; i < len(data) && i < 10; i++ {
		value |= uint64(data[i]&0x7f) << (7 * i)
		if data[i] < 0x80 {
			return value, i + 1
		}
	}
	return 0, 0
}

func checkMessageField(data []byte, t reflect.Type, number, depth int) error {
	switch {
	case t == quantityType && number == 1:
		return checkQuantity(t, string(data))
	case t == quantityType || t.Kind() != reflect.Struct:
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		words := strings.Split(f.Tag.Get("protobuf"), ",")
		if len(words) < 2 || words[1] != strconv.Itoa(number) {
			continue
		}
		of := f.Type
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() == reflect.Map {
			return checkMessage(data, entryOf(of), depth+1)
		}
		return checkMessage(data, of, depth+1)
	}
	return nil
}

// entryOf returns the type of the message of a map's entry.
func entryOf(t reflect.Type) reflect.Type {
	return reflect.StructOf([]reflect.StructField{{Name: "Value", Type: t.Elem(), Tag: `protobuf:"bytes,2"`}})
}
