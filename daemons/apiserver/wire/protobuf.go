package wire

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// These are parts of the envelope of protobuf objects: four bytes, then a runtime.Unknown with the kind (field 1), the
// message (2), and two empty strings (3 and 4).
const (
	protobufMagic = "k8s\x00"
	typeMetaTag   = 0x0a // field 1, bytes
	rawTag        = 0x12 // field 2, bytes
	envelopeEnd   = "\x1a\x00\x22\x00"
)

// appendHead appends the part of the envelope that precedes a message of size bytes.
func appendHead(to []byte, gvk schema.GroupVersionKind, size int) []byte {
	meta := runtime.TypeMeta{}
	meta.APIVersion, meta.Kind = gvk.ToAPIVersionAndKind()
	kind, _ := meta.Marshal() // fails only for a buffer that is too small, and Marshal allocates it
	to = append(to, protobufMagic...)
	to = append(to, typeMetaTag)
	to = binary.AppendUvarint(to, uint64(len(kind)))
	to = append(to, kind...)
	to = append(to, rawTag)
	return binary.AppendUvarint(to, uint64(size))
}

// appendEnvelope appends a message with its envelope.
func appendEnvelope(to []byte, gvk schema.GroupVersionKind, raw []byte) []byte {
	to = appendHead(to, gvk, len(raw))
	to = append(to, raw...)
	return append(to, envelopeEnd...)
}

// OpenEnvelope parses an envelope without its first four bytes. It returns the type of the message and the message,
// which shares the envelope's memory.
func OpenEnvelope(envelope []byte) (typeMeta runtime.TypeMeta, message []byte, err error) {
	for len(envelope) > 0 {
		field, kind, size := protowire.ConsumeTag(envelope)
		if size < 0 {
			return typeMeta, nil, protowire.ParseError(size)
		}
		envelope = envelope[size:]
		var data []byte
		if kind == protowire.BytesType {
			data, size = protowire.ConsumeBytes(envelope)
		} else {
			size = protowire.ConsumeFieldValue(field, kind, envelope)
		}
		if size < 0 {
			return typeMeta, nil, protowire.ParseError(size)
		}
		envelope = envelope[size:]
		switch {
		case field > 2:
		case kind != protowire.BytesType:
			return typeMeta, nil, fmt.Errorf("field %d of the envelope has the wire type %d", field, kind)
		case field == 2:
			message = data
		default:
			if err := typeMeta.Unmarshal(data); err != nil {
				return typeMeta, nil, err
			}
		}
	}
	return typeMeta, message, nil
}

// fieldSize returns the size, in bytes, of a field with n bytes, including tag and length.
func fieldSize(n int) int {
	size := 1 + n
	for v := uint64(n); ; v >>= 7 {
		size++
		if v < 0x80 {
			return size
		}
	}
}
