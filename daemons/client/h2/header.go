package h2

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"
)

// headerEncoder encodes the headers of requests. It lets the server index fields for later requests, except those that
// differ each time.
type headerEncoder struct {
	block   bytes.Buffer
	encoder *hpack.Encoder
	lower   headerNames
}

func (h *headerEncoder) init() {
	h.encoder = hpack.NewEncoder(&h.block)
	h.lower = headerNames{}
}

// setTableSize sets the size of the server's header table.
func (h *headerEncoder) setTableSize(size uint32) {
	h.encoder.SetMaxDynamicTableSizeLimit(size)
	h.encoder.SetMaxDynamicTableSize(min(size, 4096))
}

// Indexes in the static table (RFC 7541, appendix A).
const (
	pathField   = 4
	lengthField = 28
)

// encode returns the header block of a request, which is valid until the next call. A request that cannot be sent
// leaves no trace in the table.
func (h *headerEncoder) encode(r *http.Request, hasBody bool) ([]byte, error) {
	authority, path := r.Host, r.URL.RequestURI()
	if authority == "" {
		authority = r.URL.Host
	}
	if !httpguts.ValidHostHeader(authority) || !httpguts.ValidHeaderFieldValue(path) ||
		strings.ContainsAny(path, " \t") ||
		!strings.HasPrefix(path, "/") && path != "*" {
		return nil, fmt.Errorf("the request's address %q cannot be sent", r.URL.Redacted())
	}
	for name, values := range r.Header {
		for _, v := range values {
			if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(v) {
				return nil, fmt.Errorf("the request's header %q cannot be sent", name)
			}
		}
	}
	h.block.Reset()
	h.writeField(":authority", authority)
	h.writeField(":method", cmp.Or(r.Method, http.MethodGet))
	h.writeUnindexed(pathField, path)
	h.writeField(":scheme", "https")
	agent := false
	for name, values := range r.Header {
		switch name {
		case "Host", "Connection", "Proxy-Connection", "Transfer-Encoding", "Upgrade", "Keep-Alive", "Content-Length":
			continue // these belong to the connection or follow from the request
		case "User-Agent":
			agent = true
			if len(values) == 0 || values[0] == "" {
				continue // an empty value suppresses the header
			}
		}
		lower := h.lower.convert(name, strings.ToLower)
		for _, v := range values {
			h.writeField(lower, v)
		}
	}
	if !agent {
		h.writeField("user-agent", "Go-http-client/2.0")
	}
	switch {
	case hasBody && r.ContentLength > 0:
		h.writeUnindexed(lengthField, strconv.FormatInt(r.ContentLength, 10))
	case !hasBody && (r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch):
		h.writeUnindexed(lengthField, "0")
	}
	return h.block.Bytes(), nil
}

// headerNames caches the spelling of header names on the other side.
type headerNames map[string]string

// maxNames is the maximum number of cached names.
const maxNames = 64

func (n headerNames) convert(name string, write func(string) string) string {
	if written, ok := n[name]; ok {
		return written
	}
	written := write(name)
	if len(n) < maxNames {
		n[name] = written
	}
	return written
}

func (h *headerEncoder) writeField(name, value string) {
	// Writing to a bytes.Buffer does not fail.
	_ = h.encoder.WriteField(hpack.HeaderField{Name: name, Value: value})
}

// writeUnindexed appends a field that must not be indexed (RFC 7541, 6.2.2), with the static index of its name.
func (h *headerEncoder) writeUnindexed(name uint64, value string) {
	h.writeInteger(0, 4, name)
	h.writeInteger(0, 7, uint64(len(value)))
	h.block.WriteString(value)
}

// writeInteger appends an integer whose prefix is in the last bits of a byte (RFC 7541, 5.1).
func (h *headerEncoder) writeInteger(first byte, bits int, n uint64) {
	maximum := uint64(1)<<bits - 1
	if n < maximum {
		h.block.WriteByte(first | byte(n))
		return
	}
	h.block.WriteByte(first | byte(maximum))
	for n -= maximum; n >= 128; n >>= 7 {
		h.block.WriteByte(byte(n) | 128)
	}
	h.block.WriteByte(byte(n))
}
