package proxy

import (
	"net/http"
	"strconv"

	"clusterctl/daemons/ingress/route"
)

// appendRequest appends the request head for the backend.
func (c *conn) appendRequest(out []byte, rule *route.Rule) []byte {
	q := &c.req
	out = append(out, q.method...)
	out = append(out, ' ')
	rewrite := rule.Filters.Rewrite
	if path, ok := rewrittenPath(rewrite, q.path); ok {
		out = append(out, path...)
		if len(q.query) > 0 {
			out = append(out, '?')
			out = append(out, q.query...)
		}
	} else {
		out = append(out, q.target...)
	}
	out = append(out, " HTTP/1.1\r\n"...)
	name := q.host
	switch {
	case rewrite != nil && rewrite.Host != "":
		out = append(out, "Host: "...)
		out = append(out, rewrite.Host...)
		out = append(out, '\r', '\n')
		name = nil
	case q.hasHost || q.minor == 0:
		out = append(out, "Host: "...)
		out = append(out, q.host...)
		out = append(out, '\r', '\n')
		name = nil
	}
	changes := c.requestChanges
	for i := range q.fields {
		f := &q.fields[i]
		if f.dropped {
			continue
		}
		switch f.kind {
		case kindForwardedFor, kindForwardedProto, kindForwardedHost, kindForwardedPort, kindForwarded, kindRealIP:
			if !c.trusted || f.kind == kindForwardedFor {
				continue
			}
		case kindHost:
			if name == nil {
				continue
			}
		}
		if changes != nil && isChanged(changes, f.name) {
			continue
		}
		out = append(out, f.line...)
	}
	out = c.appendForwarded(out)
	if q.chunked {
		out = append(out, "Transfer-Encoding: chunked\r\n"...)
	}
	if q.isUpgrade {
		out = append(out, "Connection: upgrade\r\nUpgrade: "...)
		out = append(out, q.upgradeTo...)
		out = append(out, '\r', '\n')
	}
	if q.hasTETrailers {
		out = append(out, "TE: trailers\r\n"...)
	}
	out = appendChanges(out, changes)
	return append(out, '\r', '\n')
}

// appendForwarded appends the fields that describe the client. It keeps the client's own values only if the client is
// trusted.
func (c *conn) appendForwarded(out []byte) []byte {
	q := &c.req
	out = append(out, "X-Forwarded-For: "...)
	contains := func(fieldKind) bool { return false }
	if c.trusted {
		for i := range q.fields {
			if f := &q.fields[i]; f.kind == kindForwardedFor && !f.dropped && len(f.value) > 0 {
				out = append(out, f.value...)
				out = append(out, ',', ' ')
			}
		}
		contains = q.has
	}
	out = append(out, c.ip...)
	if !contains(kindRealIP) {
		out = append(out, "\r\nX-Real-IP: "...)
		out = append(out, c.ip...)
	}
	if !contains(kindForwardedHost) {
		out = append(out, "\r\nX-Forwarded-Host: "...)
		out = append(out, q.host...)
	}
	if !contains(kindForwardedProto) {
		out = append(out, c.protoLine...)
	}
	if !contains(kindForwardedPort) {
		out = append(out, c.portLine...)
	}
	return append(out, '\r', '\n')
}

func (m *message) has(k fieldKind) bool {
	for i := range m.fields {
		if f := &m.fields[i]; f.kind == k && !f.dropped {
			return true
		}
	}
	return false
}

// isChanged reports whether a filter sets or removes a field.
func isChanged(h *route.Headers, name []byte) bool {
	for i := range h.Set {
		if http.CanonicalHeaderKey(h.Set[i].Name) == http.CanonicalHeaderKey(string(name)) {
			return true
		}
	}
	for _, n := range h.Remove {
		if http.CanonicalHeaderKey(n) == http.CanonicalHeaderKey(string(name)) {
			return true
		}
	}
	return false
}

func appendChanges(out []byte, h *route.Headers) []byte {
	if h == nil {
		return out
	}
	for _, list := range [][]route.Pair{h.Set, h.Add} {
		for _, p := range list {
			out = append(out, p.Name...)
			out = append(out, ':', ' ')
			out = append(out, p.Value...)
			out = append(out, '\r', '\n')
		}
	}
	return out
}

// appendAnswer appends the head of a response without its framing and the final empty line.
func appendAnswer(out []byte, a *response, changes *route.Headers) []byte {
	out = append(out, "HTTP/1.1 "...)
	out = strconv.AppendInt(out, int64(a.status), 10)
	out = append(out, ' ')
	out = append(out, a.reason...)
	out = append(out, '\r', '\n')
	for i := range a.fields {
		f := &a.fields[i]
		if f.dropped || changes != nil && isChanged(changes, f.name) {
			continue
		}
		out = append(out, f.line...)
	}
	return appendChanges(out, changes)
}

// appendError appends a complete error response of the proxy.
func appendError(out []byte, status int, reason string, closes, head bool) []byte {
	text := http.StatusText(status)
	out = append(out, "HTTP/1.1 "...)
	out = strconv.AppendInt(out, int64(status), 10)
	out = append(out, ' ')
	out = append(out, text...)
	out = append(out,
		"\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\nContent-Length: "...)
	out = strconv.AppendInt(out, int64(len(text)+len(reason)+3), 10)
	if closes {
		out = append(out, "\r\nConnection: close"...)
	}
	out = append(out, "\r\n\r\n"...)
	if head {
		return out
	}
	out = append(out, text...)
	out = append(out, ':', ' ')
	out = append(out, reason...)
	return append(out, '\n')
}
