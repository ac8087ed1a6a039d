// Package wire parses DNS queries and writes answers in wire format (RFC 1035, RFC 6891), without allocations. Other
// packages decide on the contents.
package wire

import (
	"errors"
	"strings"
)

const (
	maxName  = 255 // bytes of a name including the final zero
	maxLabel = 63
)

// Name is a parsed domain name in lower case. It can be reused.
type Name struct {
	text   [maxName]byte
	size   int
	starts [maxName / 2]uint8 // offsets of the labels
	labels int
}

var errMalformedName = errors.New("malformed domain name")

// Parse parses an uncompressed name at the start of b and returns its length in bytes.
func (n *Name) Parse(b []byte) (int, error) {
	n.size, n.labels = 0, 0
	at := 0
	for {
		if at >= len(b) || at >= maxName {
			return 0, errMalformedName
		}
		length := int(b[at])
		if length == 0 {
			n.text[at] = 0
			n.size = at + 1
			return n.size, nil
		}
		if length > maxLabel || at+1+length >= len(b) || at+1+length >= maxName {
			return 0, errMalformedName
		}
		n.starts[n.labels] = uint8(at)
		n.labels++
		n.text[at] = byte(length)
		for i := at + 1; i <= at+length; i++ {
			n.text[i] = lowerByte(b[i])
		}
		at += 1 + length
	}
}

func lowerByte(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// Labels returns the number of labels without the root.
func (n *Name) Labels() int { return n.labels }

// Label returns a label, counted from the left.
func (n *Name) Label(i int) []byte {
	at := int(n.starts[i])
	return n.text[at+1 : at+1+int(n.text[at])]
}

// Between returns the labels from index from up to, but not including, to, in wire format without the root.
func (n *Name) Between(from, to int) []byte { return n.text[n.Start(from):n.Start(to)] }

// From returns the name that starts with the given label.
func (n *Name) From(label int) []byte { return n.text[n.Start(label):n.size] }

// Start returns the offset of a label. The root follows the last label.
func (n *Name) Start(label int) int {
	if label == n.labels {
		return n.size - 1
	}
	return int(n.starts[label])
}

// String returns the name in presentation format with a final dot. Dots in labels and non-printable bytes are escaped.
func (n *Name) String() string {
	if n.labels == 0 {
		return "."
	}
	var b strings.Builder
	for i := range n.labels {
		for _, c := range n.Label(i) {
			switch {
			case c == '.' || c == '\\':
				b.WriteByte('\\')
				b.WriteByte(c)
			case c <= ' ' || c >= 0x7f:
				b.WriteString("\\" + string([]byte{'0' + c/100, '0' + c/10%10, '0' + c%10}))
			default:
				b.WriteByte(c)
			}
		}
		b.WriteByte('.')
	}
	return b.String()
}

// Pack returns a name in wire format and lower case. text has no escapes; its final dot is optional.
func Pack(text string) ([]byte, error) {
	text = strings.TrimSuffix(strings.ToLower(text), ".")
	var out []byte
	if text != "" {
		for label := range strings.SplitSeq(text, ".") {
			if label == "" || len(label) > maxLabel {
				return nil, errMalformedName
			}
			out = append(append(out, byte(len(label))), label...)
		}
	}
	if out = append(out, 0); len(out) > maxName {
		return nil, errMalformedName
	}
	return out, nil
}
