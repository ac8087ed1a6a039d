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

// heads encodes what requests begin with. The server remembers the fields of one for the next, but for those that are
// another's each time.
type heads struct {
	block   bytes.Buffer
	encoder *hpack.Encoder
	lower   names
}

func (h *heads) open() {
	h.encoder = hpack.NewEncoder(&h.block)
	h.lower = names{}
}

// limit is how large a table the server keeps of what it remembers.
func (h *heads) limit(size uint32) {
	h.encoder.SetMaxDynamicTableSizeLimit(size)
	h.encoder.SetMaxDynamicTableSize(min(size, 4096))
}

// Fields that are encoded by their place in the table that everybody has (RFC 7541, appendix A).
const (
	pathField   = 4
	lengthField = 28
)

// of returns a request's block, which is good until the next. Nothing is remembered of a request that cannot be sent.
func (h *heads) of(r *http.Request, hasBody bool) ([]byte, error) {
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
	h.field(":authority", authority)
	h.field(":method", cmp.Or(r.Method, http.MethodGet))
	h.passing(pathField, path)
	h.field(":scheme", "https")
	agent := false
	for name, values := range r.Header {
		switch name {
		case "Host", "Connection", "Proxy-Connection", "Transfer-Encoding", "Upgrade", "Keep-Alive", "Content-Length":
			continue // which the connection says, or the request itself
		case "User-Agent":
			agent = true
			if len(values) == 0 || values[0] == "" {
				continue // it is not to be said
			}
		}
		lower := h.lower.of(name, strings.ToLower)
		for _, v := range values {
			h.field(lower, v)
		}
	}
	if !agent {
		h.field("user-agent", "Go-http-client/2.0")
	}
	switch {
	case hasBody && r.ContentLength > 0:
		h.passing(lengthField, strconv.FormatInt(r.ContentLength, 10))
	case !hasBody && (r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch):
		h.passing(lengthField, "0")
	}
	return h.block.Bytes(), nil
}

// names remembers how names of headers are written on the other side.
type names map[string]string

// mostNames is how many are remembered.
const mostNames = 64

func (n names) of(name string, write func(string) string) string {
	if written, ok := n[name]; ok {
		return written
	}
	written := write(name)
	if len(n) < mostNames {
		n[name] = written
	}
	return written
}

func (h *heads) field(name, value string) {
	// It fails only when its buffer does.
	_ = h.encoder.WriteField(hpack.HeaderField{Name: name, Value: value})
}

// passing appends a field that is not to be remembered (RFC 7541, 6.2.2), by the place of its name.
func (h *heads) passing(name uint64, value string) {
	h.number(0, 4, name)
	h.number(0, 7, uint64(len(value)))
	h.block.WriteString(value)
}

// number appends a number that begins in the last bits of a byte (RFC 7541, 5.1).
func (h *heads) number(first byte, bits int, n uint64) {
	most := uint64(1)<<bits - 1
	if n < most {
		h.block.WriteByte(first | byte(n))
		return
	}
	h.block.WriteByte(first | byte(most))
	for n -= most; n >= 128; n >>= 7 {
		h.block.WriteByte(byte(n) | 128)
	}
	h.block.WriteByte(byte(n))
}
