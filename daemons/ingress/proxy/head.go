package proxy

import "bytes"

// request is a request head. Its slices refer to the read buffer.
type request struct {
	message
	method, target []byte
	path, query    []byte // parts of the target; query without the question mark
	host           []byte // as sent by the client
	hasHost        bool
	needsContinue  bool // Expect: 100-continue
	hasTETrailers  bool // TE: trailers
}

// parse parses a request head at the start of a buffer and returns its size. It returns errIncomplete if it needs more
// data.
func (q *request) parse(b []byte) (int, *statusError) {
	q.reset()
	*q = request{message: q.message}
	at := 0
	// Skip an empty line before a request, as RFC 9112, section 2.2 recommends.
	if len(b) >= 2 && b[0] == '\r' && b[1] == '\n' {
		at = 2
	}
	text, next, err := nextLine(b, at)
	if err != nil {
		return 0, err
	}
	if err := q.requestLine(text); err != nil {
		return 0, err
	}
	at, err = q.parseFields(b, next)
	if err != nil {
		return 0, err
	}
	if err := q.validate(); err != nil {
		return 0, err
	}
	return at, nil
}

func (q *request) requestLine(text []byte) *statusError {
	n := bytes.IndexByte(text, ' ')
	last := bytes.LastIndexByte(text, ' ')
	if n <= 0 || last <= n+1 {
		return errRequestLine
	}
	q.method, q.target = text[:n], text[n+1:last]
	if !hasOnly(&tokenBytes, q.method) || !hasOnly(&targetBytes, q.target) {
		return errRequestLine
	}
	switch version := text[last+1:]; {
	case string(version) == "HTTP/1.1":
		q.minor = 1
	case string(version) == "HTTP/1.0":
	case len(version) == 8 && bytes.HasPrefix(version, []byte("HTTP/")):
		return errVersion
	default:
		return errRequestLine
	}
	switch string(q.method) {
	case "CONNECT", "TRACE":
		return errMethod
	}
	return q.splitTarget()
}

// splitTarget splits the target. The host of an absolute target takes precedence over the Host field.
func (q *request) splitTarget() *statusError {
	switch {
	case q.target[0] == '/':
	case string(q.target) == "*" && string(q.method) == "OPTIONS":
		q.path = q.target
		return nil
	default:
		_, rest, ok := bytes.Cut(q.target, []byte("://"))
		scheme := q.target[:len(q.target)-len(rest)]
		if !ok || !equalFold(scheme, "http://") && !equalFold(scheme, "https://") {
			return errRequestLine
		}
		n := bytes.IndexAny(rest, "/?")
		if n < 0 {
			n = len(rest)
		}
		q.host, q.hasHost = rest[:n], true
		if q.target = rest[n:]; len(q.target) == 0 {
			q.target = slash
		} else if q.target[0] == '?' {
			q.target = append([]byte{'/'}, q.target...)
		}
	}
	q.path, q.query, _ = bytes.Cut(q.target, questionMark)
	return nil
}

var (
	slash        = []byte("/")
	questionMark = []byte("?")
)

// validate validates the combination of fields.
func (q *request) validate() *statusError {
	hosts := 0
	for i := range q.fields {
		switch f := &q.fields[i]; f.kind {
		case kindHost:
			if hosts++; hosts > 1 {
				return errHost
			}
			if q.hasHost {
				f.dropped = true // the target's host takes precedence
			} else {
				q.host = f.value
			}
		case kindExpect:
			q.needsContinue = q.needsContinue || hasElement(f.value, "100-continue")
		case kindTE:
			q.hasTETrailers = q.hasTETrailers || hasElement(f.value, "trailers")
		}
	}
	if hosts == 0 && q.minor > 0 || !isValidHost(q.host) || q.hasHost && len(q.host) == 0 {
		return errHost
	}
	if q.chunked && q.minor == 0 {
		return errCodingVersion
	}
	if q.isUpgrade {
		q.upgradeTo = forwardableProtocols(q.upgradeTo)
		q.isUpgrade = q.minor > 0 && len(q.upgradeTo) > 0
	}
	return nil
}

// isValidHost reports whether a host is empty, or a name or an address with an optional port.
func isValidHost(h []byte) bool {
	if len(h) > 0 && h[0] == '[' {
		end := bytes.IndexByte(h, ']')
		if end < 0 {
			return false
		}
		for _, c := range h[1:end] {
			if c != ':' && c != '.' && !isHex(c) {
				return false
			}
		}
		h = h[end+1:]
		return len(h) == 0 || h[0] == ':' && isDigits(h[1:])
	}
	if n := bytes.IndexByte(h, ':'); n >= 0 {
		if n == 0 || !isDigits(h[n+1:]) {
			return false
		}
		h = h[:n]
	}
	for _, c := range h {
		if !(c == '.' || c == '-' || c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z') {
			return false
		}
	}
	return true
}

func isDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) <= 5
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// hostname returns a host in lower case without its port and final dot. It returns a part of h if nothing has to be
// changed.
func hostname(h []byte) []byte {
	if len(h) > 0 && h[0] == '[' {
		if end := bytes.IndexByte(h, ']'); end >= 0 {
			h = h[:end+1]
		}
	} else if n := bytes.IndexByte(h, ':'); n >= 0 {
		h = h[:n]
	}
	if len(h) > 1 && h[len(h)-1] == '.' {
		h = h[:len(h)-1]
	}
	for _, c := range h {
		if c >= 'A' && c <= 'Z' {
			return bytes.ToLower(h)
		}
	}
	return h
}

// response is a response head.
type response struct {
	message
	status int
	reason []byte
}

// parse parses a response head at the start of a buffer and returns its size. It returns errIncomplete if it needs more
// data.
func (a *response) parse(b []byte) (int, *statusError) {
	a.reset()
	*a = response{message: a.message}
	text, next, err := nextLine(b, 0)
	if err != nil {
		return 0, err
	}
	// HTTP/1.1 200 OK; the reason and the space before it are optional.
	if len(text) < 12 || string(text[:7]) != "HTTP/1." || text[8] != ' ' || len(text) > 12 && text[12] != ' ' {
		return 0, errStatusLine
	}
	if text[7] != '0' {
		a.minor = 1
	}
	for _, c := range text[9:12] {
		if c < '0' || c > '9' {
			return 0, errStatusLine
		}
		a.status = 10*a.status + int(c-'0')
	}
	if a.status < 100 {
		return 0, errStatusLine
	}
	if len(text) > 12 {
		a.reason = text[13:]
		for _, c := range a.reason {
			if !valueBytes[c] {
				return 0, errStatusLine
			}
		}
	}
	return a.parseFields(b, next)
}

// isValidSwitch reports whether a response only switches to protocols that the request offered.
func (a *response) isValidSwitch(q *request) bool {
	if !q.isUpgrade || len(a.upgradeTo) == 0 {
		return false
	}
	for protocol := range listElements(a.upgradeTo) {
		if !hasElement(q.upgradeTo, string(bytes.ToLower(protocol))) {
			return false
		}
	}
	return true
}

// hasBody reports whether a response can have a body. head means that the method was HEAD.
func (a *response) hasBody(head bool) bool {
	return !head && a.status >= 200 && a.status != 204 && a.status != 304
}
