package proxy

import (
	"bytes"
	"iter"
	"math"
	"slices"
)

// Heads are parsed as strictly as RFC 9112 permits. Input that two programs could interpret differently is rejected.
// Otherwise a client could smuggle a request inside of another.

// malformed is why a head or a body is rejected, with the response status.
type malformed struct {
	status int
	why    string
}

func (m *malformed) Error() string { return m.why }

var (
	errIncomplete = &malformed{400, "the head is not complete"}

	errLine          = &malformed{400, "a line does not end in CR LF"}
	errFieldName     = &malformed{400, "a field's name is not a token followed by a colon"}
	errFieldValue    = &malformed{400, "a field's value has a control character"}
	errFields        = &malformed{431, "there are too many fields"}
	errLength        = &malformed{400, "Content-Length is not one number"}
	errLengthTwice   = &malformed{400, "Content-Length is given more than once"}
	errFraming       = &malformed{400, "both Content-Length and Transfer-Encoding are given"}
	errCoding        = &malformed{501, "Transfer-Encoding is not chunked"}
	errCodingTwice   = &malformed{400, "Transfer-Encoding is given more than once"}
	errCodingVersion = &malformed{400, "Transfer-Encoding is not of HTTP/1.0"}
	errHost          = &malformed{400, "Host is not one valid host"}
	errRequestLine   = &malformed{400, "the request line is malformed"}
	errVersion       = &malformed{505, "the version is neither HTTP/1.0 nor HTTP/1.1"}
	errMethod        = &malformed{405, "the method is not passed on"}
	errStatusLine    = &malformed{502, "the status line is malformed"}
	errHeadSize      = &malformed{431, "the head is too large"}
	errPath          = &malformed{400, "the path leads out of the root or is not encoded well"}
)

const maxFields = 128

// kind is the meaning of a field for the proxy.
type kind uint8

const (
	other kind = iota
	connection
	contentLength
	transferEncoding
	host
	keepAlive
	proxyConnection
	te
	upgrade
	http2Settings
	httpoxy
	expect
	forwardedFor
	forwardedProto
	forwardedHost
	forwardedPort
	forwarded
	realIP
	trailer
)

// names are the known fields by length.
var names = [32][]struct {
	name string
	kind kind
}{
	2:  {{"te", te}},
	4:  {{"host", host}},
	5:  {{"proxy", httpoxy}},
	6:  {{"expect", expect}},
	7:  {{"upgrade", upgrade}, {"trailer", trailer}},
	9:  {{"forwarded", forwarded}, {"x-real-ip", realIP}},
	10: {{"connection", connection}, {"keep-alive", keepAlive}},
	14: {{"content-length", contentLength}, {"http2-settings", http2Settings}},
	15: {{"x-forwarded-for", forwardedFor}},
	16: {
		{"proxy-connection", proxyConnection},
		{"x-forwarded-host", forwardedHost},
		{"x-forwarded-port", forwardedPort},
	},
	17: {{"transfer-encoding", transferEncoding}, {"x-forwarded-proto", forwardedProto}},
}

// isToken, isValue and isTarget mark the bytes that are valid in a field name, in a field value and in a request
// target. lower maps a byte to lower case, and an underscore to a hyphen, because CGI-like programs cannot distinguish
// them.
var (
	isToken, isValue, isTarget [256]bool
	lower                      [256]byte
)

func init() {
	for c := range 256 {
		b := byte(c)
		letter := b|0x20 >= 'a' && b|0x20 <= 'z'
		isToken[c] = letter || b >= '0' && b <= '9' || b < 0x80 && bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), b) >= 0
		isValue[c] = b == '\t' || b >= ' ' && b != 0x7f
		isTarget[c] = b > ' ' && b != 0x7f && b != '#'
		lower[c] = b
		if b >= 'A' && b <= 'Z' {
			lower[c] = b | 0x20
		}
	}
	lower['_'] = '-'
}

// isAll reports whether all bytes are of a kind.
func isAll(kind *[256]bool, text []byte) bool {
	for _, c := range text {
		if !kind[c] {
			return false
		}
	}
	return true
}

func kindOf(name []byte) kind {
	if len(name) >= len(names) {
		return other
	}
	for i := range names[len(name)] {
		if known := &names[len(name)][i]; equalFold(name, known.name) {
			return known.kind
		}
	}
	return other
}

// equalFold compares with a text in lower case.
func equalFold(b []byte, text string) bool {
	if len(b) != len(text) {
		return false
	}
	for i, c := range b {
		if lower[c] != text[i] {
			return false
		}
	}
	return true
}

// field is one line of a head. Its slices are of the buffer that was read.
type field struct {
	line, name, value []byte // the line with its end; the value without spaces around it
	kind              kind
	dropped           bool // only for the next hop
}

// message is what requests and answers have in common.
type message struct {
	fields    []field
	length    int64 // of the body; -1: not given
	chunked   bool
	minor     byte // HTTP/1.minor
	close     bool
	keepAlive bool
	upgrading bool   // Connection names Upgrade
	upgradeTo []byte // the list of protocols of Upgrade
}

func (m *message) reset() {
	*m = message{fields: m.fields[:0], length: -1}
}

// persists reports whether the connection is for more messages after this one.
func (m *message) persists() bool { return !m.close && (m.minor > 0 || m.keepAlive) }

// line returns the line that begins at a place of a buffer, without its end, and where the next one begins.
func line(b []byte, at int) ([]byte, int, *malformed) {
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
func (m *message) parseFields(b []byte, at int) (int, *malformed) {
	named := false
	for {
		text, next, err := line(b, at)
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
		for n < len(text) && isToken[text[n]] {
			n++
		}
		if n == 0 || n == len(text) || text[n] != ':' {
			return 0, errFieldName
		}
		value := text[n+1:]
		for _, c := range value {
			if !isValue[c] {
				return 0, errFieldValue
			}
		}
		m.fields = append(m.fields, field{line: b[at:next], name: text[:n], value: trim(value), kind: kindOf(text[:n])})
		f := &m.fields[len(m.fields)-1]
		if f.kind != other {
			more, err := m.known(f)
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

// known takes in a field that means something to a proxy. It returns whether it names other fields to drop.
func (m *message) known(f *field) (bool, *malformed) {
	// An underscore does not make these fields others, but only their own name has their meaning.
	if bytes.IndexByte(f.name, '_') >= 0 {
		f.dropped = true
		return false, nil
	}
	switch f.kind {
	case contentLength:
		if m.length >= 0 {
			return false, errLengthTwice
		}
		n, ok := decimal(f.value)
		if !ok {
			return false, errLength
		}
		m.length = n
	case transferEncoding:
		if m.chunked {
			return false, errCodingTwice
		}
		if !equalFold(f.value, "chunked") {
			return false, errCoding
		}
		m.chunked, f.dropped = true, true
	case connection:
		f.dropped = true
		return m.connection(f.value), nil
	case upgrade:
		f.dropped = true
		if len(m.upgradeTo) > 0 { // lines of one name are one list
			m.upgradeTo = slices.Concat(m.upgradeTo, comma, f.value)
		} else {
			m.upgradeTo = f.value
		}
	case keepAlive, proxyConnection, http2Settings, httpoxy, te:
		f.dropped = true
	}
	return false, nil
}

// decimal reads a number of digits alone.
func decimal(b []byte) (int64, bool) {
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

// connection reads what is said of the connection, and returns whether fields are named that are only for the next hop.
func (m *message) connection(value []byte) (named bool) {
	for option := range elements(value) {
		switch {
		case equalFold(option, "close"):
			m.close = true
		case equalFold(option, "keep-alive"):
			m.keepAlive = true
		case equalFold(option, "upgrade"):
			m.upgrading = true
		default:
			named = true
		}
	}
	return named
}

var comma = []byte(",")

// elements returns the elements of a list, without the spaces around them. Empty elements are left out.
func elements(list []byte) iter.Seq[[]byte] {
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

// lists reports whether a list has an element, given in lower case.
func lists(list []byte, element string) bool {
	for e := range elements(list) {
		if equalFold(e, element) {
			return true
		}
	}
	return false
}

// passedOn reports whether a protocol that a client wants to switch to is offered to the backend: not HTTP/2, whose
// requests would pass by the rules, and nothing that is not written as a protocol is.
func passedOn(protocol []byte) bool {
	name, version, found := bytes.Cut(protocol, slash)
	return len(name) > 0 && isAll(&isToken, name) && isAll(&isToken, version) && found == (len(version) > 0) &&
		!equalFold(name, "h2c")
}

// protocols returns the protocols of an Upgrade that are offered to the backend, as a list.
func protocols(list []byte) []byte {
	whole := true
	for protocol := range elements(list) {
		whole = whole && passedOn(protocol)
	}
	if whole {
		return list
	}
	var out []byte
	for protocol := range elements(list) {
		if passedOn(protocol) {
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
		if m.fields[i].kind != connection {
			continue
		}
		for option := range elements(m.fields[i].value) {
			for j := range m.fields {
				if f := &m.fields[j]; (f.kind == other || f.kind == trailer || f.kind == expect) &&
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
