package rpc

import (
	"bytes"
	"fmt"
	"time"

	"golang.org/x/net/http2/hpack"
)

// heads encodes what calls begin with. The server remembers the fields of one for the next; when it has all of a
// method's, its block is the same bytes each time, and need not be made again.
type heads struct {
	common  []Header
	block   bytes.Buffer
	encoder *hpack.Encoder
	last    map[string][]byte // by method: its block when it was last made
	settled map[string]bool   // by method: whether that is how it stays
}

func (h *heads) open(scheme, authority string, headers []Header) {
	h.common = append([]Header{
		{
			":method",
			"POST",
		}, {":scheme", scheme}, {":authority", authority}, {"content-type", "application/grpc"}, {"te", "trailers"},
	}, headers...)
	h.encoder = hpack.NewEncoder(&h.block)
	h.last, h.settled = map[string][]byte{}, map[string]bool{}
}

// limit is how large a table the server keeps of what it remembers.
func (h *heads) limit(size uint32) {
	h.encoder.SetMaxDynamicTableSizeLimit(size)
	h.encoder.SetMaxDynamicTableSize(min(size, 4096))
	clear(h.settled)
}

// head returns a call's block, which is good until the next: a method's calls have the same headers each time. left is
// how much time the server has, 0 if any.
func (h *heads) head(method string, headers []Header, left time.Duration) []byte {
	h.block.Reset()
	if h.settled[method] {
		h.block.Write(h.last[method])
	} else {
		h.encode(method, headers)
	}
	if left > 0 {
		h.passing("grpc-timeout", timeout(left))
	}
	return h.block.Bytes()
}

func (h *heads) encode(method string, headers []Header) {
	field := func(name, value string) {
		// It fails only when its buffer does.
		_ = h.encoder.WriteField(hpack.HeaderField{Name: name, Value: value})
	}
	pseudo := 3 // fields that begin with a colon come first
	for _, f := range h.common[:pseudo] {
		field(f.Name, f.Value)
	}
	field(":path", method)
	for _, f := range h.common[pseudo:] {
		field(f.Name, f.Value)
	}
	for _, f := range headers {
		field(f.Name, f.Value)
	}
	made := h.block.Bytes()
	if bytes.Equal(made, h.last[method]) {
		// Nothing was new in it, so nothing has moved in the server's table.
		h.settled[method] = true
		return
	}
	clear(h.settled)
	h.last[method] = bytes.Clone(made)
}

// passing appends a field that is not to be remembered (RFC 7541, 6.2.3). Name and value are shorter than 127 bytes.
func (h *heads) passing(name, value string) {
	h.block.WriteByte(0x10)
	h.block.WriteByte(byte(len(name)))
	h.block.WriteString(name)
	h.block.WriteByte(byte(len(value)))
	h.block.WriteString(value)
}

// timeout is how the protocol says how much time is left: at most eight digits and a unit.
func timeout(left time.Duration) string {
	if ms := left.Milliseconds(); ms < 1e8 {
		return fmt.Sprintf("%dm", max(ms, 1))
	}
	return fmt.Sprintf("%dS", min(int64(left/time.Second), 99999999))
}
