package proxy

import (
	"bytes"
	"iter"
	"math"
	"slices"
)

// Heads are parsed as strictly as RFC 9112 permits. Input that two programs could interpret differently is rejected.
// Otherwise a client could smuggle a request inside of another.

// statusError is why a head or a body is rejected, with the response status.
type statusError struct {
	status int
	reason string
}

func (m *statusError) Error() string { return m.reason }

var (
	errIncomplete = &statusError{400, "the head is not complete"}

	errLine          = &statusError{400, "a line does not end in CR LF"}
	errFieldName     = &statusError{400, "a field's name is not a token followed by a colon"}
	errFieldValue    = &statusError{400, "a field's value has a control character"}
	errFields        = &statusError{431, "there are too many fields"}
	errLength        = &statusError{400, "Content-Length is not one number"}
	errLengthTwice   = &statusError{400, "Content-Length is given more than once"}
	errFraming       = &statusError{400, "both Content-Length and Transfer-Encoding are given"}
	errCoding        = &statusError{501, "Transfer-Encoding is not chunked"}
	errCodingTwice   = &statusError{400, "Transfer-Encoding is given more than once"}
	errCodingVersion = &statusError{400, "Transfer-Encoding is not of HTTP/1.0"}
	errHost          = &statusError{400, "Host is not one valid host"}
	errRequestLine   = &statusError{400, "the request line is malformed"}
	errVersion       = &statusError{505, "the version is neither HTTP/1.0 nor HTTP/1.1"}
	errMethod        = &statusError{405, "the method is not passed on"}
	errStatusLine    = &statusError{502, "the status line is malformed"}
	errHeadSize      = &statusError{431, "the head is too large"}
	errPath          = &statusError{400, "the path leads out of the root or is not encoded well"}
)

const maxFields = 128

// fieldKind is the meaning of a field for the proxy.
type fieldKind uint8

const (
	kindOther fieldKind = iota
	kindConnection
	kindContentLength
	kindTransferEncoding
	kindHost
	kindKeepAlive
	kindProxyConnection
	kindTE
	kindUpgrade
	kindHTTP2Settings
	kindProxy
	kindExpect
	kindForwardedFor
	kindForwardedProto
	kindForwardedHost
	kindForwardedPort
	kindForwarded
	kindRealIP
	kindTrailer
)

// knownFields are the known fields by length.
var knownFields = [32][]struct {
	name string
	kind fieldKind
}{
	2:  {{"te", kindTE}},
	4:  {{"host", kindHost}},
	5:  {{"proxy", kindProxy}},
	6:  {{"expect", kindExpect}},
	7:  {{"upgrade", kindUpgrade}, {"trailer", kindTrailer}},
	9:  {{"forwarded", kindForwarded}, {"x-real-ip", kindRealIP}},
	10: {{"connection", kindConnection}, {"keep-alive", kindKeepAlive}},
	14: {{"content-length", kindContentLength}, {"http2-settings", kindHTTP2Settings}},
	15: {{"x-forwarded-for", kindForwardedFor}},
	16: {
		{"proxy-connection", kindProxyConnection},
		{"x-forwarded-host", kindForwardedHost},
		{"x-forwarded-port", kindForwardedPort},
	},
	17: {{"transfer-encoding", kindTransferEncoding}, {"x-forwarded-proto", kindForwardedProto}},
}

// tokenBytes, valueBytes and targetBytes mark the bytes that are valid in a field name, in a field value and in a
// request target. lower maps a byte to lower case, and an underscore to a hyphen, because CGI-like programs cannot
// distinguish them.
var (
	tokenBytes, valueBytes, targetBytes [256]bool
	lowerBytes                          [256]byte
)

func init() {
	for c := range 256 {
		b := byte(c)
		letter := b|0x20 >= 'a' && b|0x20 <= 'z'
		tokenBytes[c] = letter || b >= '0' && b <= '9' || b < 0x80 && bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), b) >= 0
		valueBytes[c] = b == '\t' || b >= ' ' && b != 0x7f
		targetBytes[c] = b > ' ' && b != 0x7f && b != '#'
		lowerBytes[c] = b
		if b >= 'A' && b <= 'Z' {
			lowerBytes[c] = b | 0x20
		}
	}
	lowerBytes['_'] = '-'
}

// hasOnly reports whether all bytes are of a kind.
func hasOnly(kind *[256]bool, text []byte) bool {
	for _, c := range text {
		if !kind[c] {
			return false
		}
	}
	return true
}

func kindOf(name []byte) fieldKind {
	if len(name) >= len(knownFields) {
		return kindOther
	}
	for i := range knownFields[len(name)] {
		if field := &knownFields[len(name)][i]; equalFold(name, field.name) {
			return field.kind
		}
	}
	return kindOther
}

// equalFold compares with a text in lower case.
func equalFold(b []byte, text string) bool {
	if len(b) != len(text) {
		return false
	}
	for i, c := range b {
		if lowerBytes[c] != text[i] {
			return false
		}
	}
	return true
}

// field is one line of a head. Its slices are of the buffer that was read.
type field struct {
	line, name, value []byte // the line with its end; the value without spaces around it
	kind              fieldKind
	dropped           bool // only for the next hop
}

// message is the common part of requests and responses.
type message struct {
	fields    []field
	length    int64 // of the body; -1: not given
	chunked   bool
	minor     byte // HTTP/1.minor
	close     bool
	keepAlive bool
	isUpgrade bool   // Connection names Upgrade
	upgradeTo []byte // the list of protocols of Upgrade
}

func (m *message) reset() {
	*m = message{fields: m.fields[:0], length: -1}
}

// isPersistent reports whether the connection is for more messages after this one.
func (m *message) isPersistent() bool { return !m.close && (m.minor > 0 || m.keepAlive) }

// nextLine returns the line that begins at a place of a buffer, without its end, and where the next one begins.
func nextLine(b []byte, at int) ([]byte, int, *statusError) {
	n := bytes.IndexByte(b[at:], '\n')
	if n < 0 {
		return nil, 0, errIncomplete
	}
	if n == 0 || b[at+n-1] != '\r' {
		return nil, 0, errLine
	}
	return b[at : at+n-1], at + n + 1, nil
}

// parseFields reads the fields from a place in a buffer up to the empty line, and returns where that ends.
func (m *message) parseFields(b []byte, at int) (int, *statusError) {
	named := false
	for {
		text, next, err := nextLine(b, at)
		if err != nil {
			return 0, err
		}
		if len(text) == 0 {
			at = next
			break
		}
		if len(m.fields) == maxFields {
			return 0, errFields
		}
		n := 0
		for n < len(text) && tokenBytes[text[n]] {
			n++
		}
		if n == 0 || n == len(text) || text[n] != ':' {
			return 0, errFieldName
		}
		value := text[n+1:]
		for _, c := range value {
			if !valueBytes[c] {
				return 0, errFieldValue
			}
		}
		m.fields = append(m.fields, field{line: b[at:next], name: text[:n], value: trim(value), kind: kindOf(text[:n])})
		f := &m.fields[len(m.fields)-1]
		if f.kind != kindOther {
			more, err := m.applyField(f)
			if err != nil {
				return 0, err
			}
			named = named || more
		}
		at = next
	}
	if m.chunked && m.length >= 0 {
		return 0, errFraming
	}
	if named {
		m.dropNamed()
	}
	return at, nil
}

func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// applyField takes in a field that means something to a proxy. It returns whether it names other fields to drop.
func (m *message) applyField(f *field) (bool, *statusError) {
	// An underscore does not make these fields others, but only their own name has their meaning.
	if bytes.IndexByte(f.name, '_') >= 0 {
		f.dropped = true
		return false, nil
	}
	switch f.kind {
	case kindContentLength:
		if m.length >= 0 {
			return false, errLengthTwice
		}
		n, ok := parseDecimal(f.value)
		if !ok {
			return false, errLength
		}
		m.length = n
	case kindTransferEncoding:
		if m.chunked {
			return false, errCodingTwice
		}
		if !equalFold(f.value, "chunked") {
			return false, errCoding
		}
		m.chunked, f.dropped = true, true
	case kindConnection:
		f.dropped = true
		return m.parseConnection(f.value), nil
	case kindUpgrade:
		f.dropped = true
		if len(m.upgradeTo) > 0 { // lines of one name are one list
			m.upgradeTo = slices.Concat(m.upgradeTo, comma, f.value)
		} else {
			m.upgradeTo = f.value
		}
	case kindKeepAlive, kindProxyConnection, kindHTTP2Settings, kindProxy, kindTE:
		f.dropped = true
	}
	return false, nil
}

// parseDecimal reads a number of digits alone.
func parseDecimal(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, n < math.MaxInt64/2
}

// parseConnection reads what is said of the connection, and returns whether fields are named that are only for the next
// hop.
func (m *message) parseConnection(value []byte) (named bool) {
	for option := range listElements(value) {
		switch {
		case equalFold(option, "close"):
			m.close = true
		case equalFold(option, "keep-alive"):
			m.keepAlive = true
		case equalFold(option, "upgrade"):
			m.isUpgrade = true
		default:
			named = true
		}
	}
	return named
}

var comma = []byte(",")

// listElements returns the elements of a list, without the spaces around them. Empty elements are left out.
func listElements(list []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(list) > 0 {
			var element []byte
			element, list, _ = bytes.Cut(list, comma)
			if element = trim(element); len(element) > 0 && !yield(element) {
				return
			}
		}
	}
}

// hasElement reports whether a list has an element, given in lower case.
func hasElement(list []byte, element string) bool {
	for e := range listElements(list) {
		if equalFold(e, element) {
			return true
		}
	}
	return false
}

// isForwardable reports whether a protocol that a client wants to switch to is offered to the backend: not HTTP/2,
// whose requests would pass by the rules, and nothing that is not written as a protocol is.
func isForwardable(protocol []byte) bool {
	name, version, found := bytes.Cut(protocol, slash)
	return len(name) > 0 && hasOnly(&tokenBytes, name) && hasOnly(&tokenBytes, version) &&
		found == (len(version) > 0) &&
		!equalFold(name, "h2c")
}

// forwardableProtocols returns the protocols of an Upgrade that are offered to the backend, as a list.
func forwardableProtocols(list []byte) []byte {
	whole := true
	for protocol := range listElements(list) {
		whole = whole && isForwardable(protocol)
	}
	if whole {
		return list
	}
	var out []byte
	for protocol := range listElements(list) {
		if isForwardable(protocol) {
			if len(out) > 0 {
				out = append(out, ", "...)
			}
			out = append(out, protocol...)
		}
	}
	return out
}

// dropNamed drops the fields that Connection names, but none that say what the message is.
func (m *message) dropNamed() {
	for i := range m.fields {
		if m.fields[i].kind != kindConnection {
			continue
		}
		for option := range listElements(m.fields[i].value) {
			for j := range m.fields {
				if f := &m.fields[j]; (f.kind == kindOther || f.kind == kindTrailer || f.kind == kindExpect) &&
					bytes.EqualFold(f.name, option) {
					f.dropped = true
				}
			}
		}
	}
}

// value returns a field's value by its name in lower case.
func (m *message) value(name string) ([]byte, bool) {
	for i := range m.fields {
		if equalFold(m.fields[i].name, name) {
			return m.fields[i].value, true
		}
	}
	return nil, false
}
