package rpc

import (
	"bytes"
	"fmt"
	"time"

	"golang.org/x/net/http2/hpack"
)

// headerEncoder encodes the header blocks of calls. The server's dynamic table keeps the header fields of earlier
// calls. Once it has all fields of a method, the block for the method has the same bytes each time, and is reused.
type headerEncoder struct {
	common   []Header
	block    bytes.Buffer
	encoder  *hpack.Encoder
	last     map[string][]byte // last encoded block of each method
	reusable map[string]bool   // whether the method's block can be reused
}

func (h *headerEncoder) open(scheme, authority string, headers []Header) {
	h.common = append([]Header{
		{
			":method",
			"POST",
		}, {":scheme", scheme}, {":authority", authority}, {"content-type", "application/grpc"}, {"te", "trailers"},
	}, headers...)
	h.encoder = hpack.NewEncoder(&h.block)
	h.last, h.reusable = map[string][]byte{}, map[string]bool{}
}

// setTableSize sets the size of the server's dynamic table.
func (h *headerEncoder) setTableSize(size uint32) {
	h.encoder.SetMaxDynamicTableSizeLimit(size)
	h.encoder.SetMaxDynamicTableSize(min(size, 4096))
	clear(h.reusable)
}

// blockFor returns a call's header block, which is valid until the next call of blockFor. A method must always have the
// same headers. left is how much time the server has; 0 if there is no limit.
func (h *headerEncoder) blockFor(method string, headers []Header, left time.Duration) []byte {
	h.block.Reset()
	if h.reusable[method] {
		h.block.Write(h.last[method])
	} else {
		h.encode(method, headers)
	}
	if left > 0 {
		h.addUnindexed("grpc-timeout", timeout(left))
	}
	return h.block.Bytes()
}

func (h *headerEncoder) encode(method string, headers []Header) {
	field := func(name, value string) {
		// It fails only if its buffer does.
		_ = h.encoder.WriteField(hpack.HeaderField{Name: name, Value: value})
	}
	pseudo := 3 // pseudo-headers come first
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
		// The block added nothing to the server's table, so the table has not changed.
		h.reusable[method] = true
		return
	}
	clear(h.reusable)
	h.last[method] = bytes.Clone(made)
}

// addUnindexed appends a field that is not added to the table (RFC 7541, 6.2.3). Name and value must be shorter than
// 127 bytes.
func (h *headerEncoder) addUnindexed(name, value string) {
	h.block.WriteByte(0x10)
	h.block.WriteByte(byte(len(name)))
	h.block.WriteString(name)
	h.block.WriteByte(byte(len(value)))
	h.block.WriteString(value)
}

// timeout formats a duration for grpc-timeout: at most eight digits and a unit.
func timeout(left time.Duration) string {
	if ms := left.Milliseconds(); ms < 1e8 {
		return fmt.Sprintf("%dm", max(ms, 1))
	}
	return fmt.Sprintf("%dS", min(int64(left/time.Second), 99999999))
}
