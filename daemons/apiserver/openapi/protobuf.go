package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Clients ask for version 2 of the document as a protobuf message, openapi.v2.Document. The message is specified by
// OpenAPIv2.proto of github.com/google/gnostic-models; its own parser needs several times the memory.

// encodeProtobuf converts an OpenAPI version 2 document from JSON to its protobuf message. Members that the message
// does not have, or that have another type there, are omitted.
func encodeProtobuf(document []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("decode the OpenAPI document: %w", err)
	}
	return documentMessage().encode(nil, v), nil
}

// encoder appends the encoded fields of a message with the value v.
type encoder func(b []byte, v any) []byte

// memberEncoder appends a field, with its number, for a member with the value v.
type memberEncoder func(b []byte, v any) []byte

// message is a message whose fields are members of an object.
type message struct {
	members      map[string]memberEncoder
	extensions   protowire.Number // the field of members whose name begins with x-; 0 for none
	otherMembers memberEncoder    // all other members, each as an entry; nil to leave them out
}

// mapEntry is a member of an object with arbitrary names.
type mapEntry struct {
	name  string
	value any
}

func (m *message) encode(b []byte, v any) []byte {
	o, _ := v.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(o)) {
		value := o[name]
		switch encode := m.members[name]; {
		case value == nil:
		case encode != nil:
			b = encode(b, value)
		case m.extensions != 0 && strings.HasPrefix(name, "x-"):
			b = namedField(m.extensions, encodeAny)(b, mapEntry{name, value})
		case m.otherMembers != nil:
			b = m.otherMembers(b, mapEntry{name, value})
		}
	}
	return b
}

func textField(n protowire.Number) memberEncoder {
	return func(b []byte, v any) []byte {
		if s, ok := v.(string); ok {
			b = protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
		}
		return b
	}
}

func boolField(n protowire.Number) memberEncoder {
	return func(b []byte, v any) []byte {
		if v == true { // false is the default, which is not encoded
			b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), 1)
		}
		return b
	}
}

func integerField(n protowire.Number) memberEncoder {
	return func(b []byte, v any) []byte {
		number, _ := v.(json.Number)
		if i, err := number.Int64(); err == nil && i != 0 {
			b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(i))
		}
		return b
	}
}

func doubleField(n protowire.Number) memberEncoder {
	return func(b []byte, v any) []byte {
		number, _ := v.(json.Number)
		if f, err := number.Float64(); err == nil && f != 0 {
			b = protowire.AppendFixed64(protowire.AppendTag(b, n, protowire.Fixed64Type), math.Float64bits(f))
		}
		return b
	}
}

func messageField(n protowire.Number, encode encoder) memberEncoder {
	return func(b []byte, v any) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), encode(nil, v))
	}
}

// repeatedField appends a field for each value of a list.
func repeatedField(n protowire.Number, each func(protowire.Number) memberEncoder) memberEncoder {
	return func(b []byte, v any) []byte {
		list, _ := v.([]any)
		for _, v := range list {
			b = each(n)(b, v)
		}
		return b
	}
}

// repeatedMessage appends a message for each value of a list.
func repeatedMessage(n protowire.Number, encode encoder) memberEncoder {
	return repeatedField(n, func(n protowire.Number) memberEncoder { return messageField(n, encode) })
}

// namedField appends an entry as a message with a name and a value.
func namedField(n protowire.Number, encode encoder) memberEncoder {
	return messageField(n, func(b []byte, v any) []byte {
		e, _ := v.(mapEntry)
		return messageField(2, encode)(textField(1)(b, e.name), e.value)
	})
}

// mapEncoder returns the encoder of an object with arbitrary keys, whose values are messages.
func mapEncoder(encode encoder) encoder {
	return (&message{otherMembers: namedField(1, encode)}).encode
}

// encodeAny appends a value of any type as a text in YAML, of which JSON is a part.
func encodeAny(b []byte, v any) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return b // v was decoded from JSON
	}
	return textField(2)(b, out.String())
}
