package wire

import (
	"encoding/binary"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Protobuf objects travel in an envelope: four bytes, then a runtime.Unknown with the
// kind (field 1), the message (2), and two empty strings (3 and 4).
const (
	magic  = "k8s\x00"
	inner1 = 0x0a // field 1, bytes
	inner2 = 0x12 // field 2, bytes
	trail  = "\x1a\x00\x22\x00"
)

// appendHead appends the envelope up to where a message of size bytes begins.
func appendHead(to []byte, gvk schema.GroupVersionKind, size int) []byte {
	meta := runtime.TypeMeta{}
	meta.APIVersion, meta.Kind = gvk.ToAPIVersionAndKind()
	kind, _ := meta.Marshal() // fails only for lack of room, which it makes itself
	to = append(to, magic...)
	to = append(to, inner1)
	to = binary.AppendUvarint(to, uint64(len(kind)))
	to = append(to, kind...)
	to = append(to, inner2)
	return binary.AppendUvarint(to, uint64(size))
}

// appendEnvelope appends a message in its envelope.
func appendEnvelope(to []byte, gvk schema.GroupVersionKind, raw []byte) []byte {
	to = appendHead(to, gvk, len(raw))
	to = append(to, raw...)
	return append(to, trail...)
}

// fieldSize is what a message costs as a field of another.
func fieldSize(n int) int {
	size := 1 + n
	for v := uint64(n); ; v >>= 7 {
		size++
		if v < 0x80 {
			return size
		}
	}
}
