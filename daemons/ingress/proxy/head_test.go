package proxy

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Ambiguous requests are rejected (RFC 9112), because they allow request smuggling.
func TestAmbiguousRequestsAreRejected(t *testing.T) {
	for text, want := range map[string]int{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n": 0,
		// section 2.2
		"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n": 0,
		// section 3.2.2
		"GET http://b/x HTTP/1.1\r\nHost: a\r\n\r\n": 0,
		"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n":      0,
		"GET / HTTP/1.0\r\n\r\n":                     0,
		"GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n":  0,
		// section 3.2
		"GET / HTTP/1.1\r\n\r\n":                       400,
		"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n": 400,
		"GET / HTTP/1.1\r\nHost: a b\r\n\r\n":          400,
		"GET / HTTP/1.1\r\nHost: a:b\r\n\r\n":          400,
		"GET / HTTP/1.1\r\nHost: a/../b\r\n\r\n":       400,
		"GET  / HTTP/1.1\r\nHost: a\r\n\r\n":           400,
		"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n":         400,
		"GET /#x HTTP/1.1\r\nHost: a\r\n\r\n":          400,
		"GET x HTTP/1.1\r\nHost: a\r\n\r\n":            400,
		"G(T / HTTP/1.1\r\nHost: a\r\n\r\n":            400,
		"GET / HTTP/1.2\r\nHost: a\r\n\r\n":            505,
		"GET / HTTP/2.0\r\nHost: a\r\n\r\n":            505,
		"GET / http/1.1\r\nHost: a\r\n\r\n":            400,
		"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n":     405,
		"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n":          405,
		// bare LF
		"GET / HTTP/1.1\nHost: a\n\n":             400,
		"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n": 400,
		// bare CR
		"GET / HTTP/1.1\r\nHost: a\r\nX: b\rc\r\n\r\n":   400,
		"GET / HTTP/1.1\r\nHost: a\r\nX: b\x00c\r\n\r\n": 400,
		// obs-fold, section 5.2
		"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n": 400,
		// section 5.1
		"GET / HTTP/1.1\r\nHost : a\r\n\r\n":       400,
		"GET / HTTP/1.1\r\n Host: a\r\n\r\n":       400,
		"GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n":   400,
		"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n": 400,
		// section 6.3
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n":                   400,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\n":                                     400,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\n":                                       400,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x3\r\n\r\n":                                      400,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n":                                          400,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n":                     400,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n":          400,
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n": 400,
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n":                         501,
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n":                           400,
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n":                              501,
		"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n":                               400,
		"GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: y\r\n", maxFields) + "\r\n":                 431,
	} {
		var q request
		n, err := q.parse([]byte(text))
		got := 0
		if err != nil {
			got = err.status
		}
		if got != want || err == errIncomplete || err == nil && n != len(text) {
			t.Errorf("%.90q: %v, %d of %d bytes, want %d", text, err, n, len(text), want)
		}
	}
}

func TestIncompleteHeadsWaitForMoreData(t *testing.T) {
	const text = "POST /x?y HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\n"
	for i := range text {
		var q request
		if _, err := q.parse([]byte(text[:i])); err != errIncomplete {
			t.Errorf("%q: %v", text[:i], err)
		}
	}
}

func TestChunkedBodiesAreReadStrictlyInPiecesOfAnySize(t *testing.T) {
	for text, want := range map[string]string{
		"3\r\nabc\r\n0\r\n\r\n":                     "abc",
		"0\r\n\r\n":                                 "",
		"3;x=y\r\nabc\r\n0\r\n\r\n":                 "abc",
		"A\r\n0123456789\r\n00\r\nX-Sum: 1\r\n\r\n": "0123456789",
		"3\nabc\r\n0\r\n\r\n":                       "!",
		"3\r\nabc0\r\n\r\n":                         "!",
		"3\r\nabcd\r\n0\r\n\r\n":                    "!",
		" 3\r\nabc\r\n0\r\n\r\n":                    "!",
		"0x3\r\nabc\r\n0\r\n\r\n":                   "!",
		"\r\n":                                      "!",
		"3;a\x00\r\nabc\r\n0\r\n\r\n":               "!",
		"3;a\nb\r\nabc\r\n0\r\n\r\n":                "!",
		"ffffffffffffffffff\r\n":                    "!",
		"0\r\nContent-Length: 3\r\n\r\n":            "!",
		"0\r\nTransfer-Encoding: x\r\n\r\n":         "!",
		"0\r\n x: y\r\n\r\n":                        "!",
		"0\r\nx: y\n\r\n":                           "!",
		"0\r\nX: " + strings.Repeat("y", maxTrailers) + "\r\n\r\n": "!",
	} {
		for _, size := range []int{1, 2, 7, len(text)} {
			var c chunks
			var got []byte
			var bad *statusError
			rest := []byte(text)
			for len(rest) > 0 && bad == nil && !c.isDone() {
				piece := rest[:min(size, len(rest))]
				rest = rest[len(piece):]
				for len(piece) > 0 && bad == nil && !c.isDone() {
					n, data, err := c.parse(piece)
					got = append(got, data...)
					piece, bad = piece[n:], err
				}
			}
			if (want == "!") != (bad != nil) || want != "!" && (string(got) != want || !c.isDone()) {
				t.Errorf("%.60q in pieces of %d: %q, %v, done %v", text, size, got, bad, c.isDone())
			}
		}
	}
}

// Every accepted request is also accepted by the standard library, with the same host, body and length.
func FuzzRequestHead(f *testing.F) {
	for _, text := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: " +
			"3\r\n\r\nabc", "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: " +
			"chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "GET / HTTP/1.0\r\nConnection: keep-alive, x\r\nX: y\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var q request
		n, bad := q.parse(text)
		if bad != nil {
			return
		}
		if n > len(text) {
			t.Fatalf("%d of %d bytes", n, len(text))
		}
		c := &conn{e: &Engine{}, ip: []byte("192.0.2.1")}
		c.req = q
		out := append(c.appendRequest(nil, emptyRule), text[n:]...)
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(out)))
		if err != nil {
			if strings.Contains(err.Error(), "invalid URI") || strings.Contains(err.Error(), "parse") {
				return // the standard library parses targets more strictly
			}
			t.Fatalf("%q is sent on as %q, which is refused: %v", text, out, err)
		}
		if r.Host != string(q.host) || r.Method != string(q.method) {
			t.Fatalf("%q is sent on as one for %q with %s, not %q with %s", text, r.Host, r.Method, q.host, q.method)
		}
		chunked := len(r.TransferEncoding) > 0
		if chunked != q.chunked || !chunked && max(r.ContentLength, 0) != max(q.length, 0) {
			t.Fatalf("%q is sent on with %d bytes, chunked %v; read with %d, %v", text, r.ContentLength, chunked,
				q.length, q.chunked)
		}
		if !q.chunked {
			return
		}
		var body chunks
		if _, bad := body.consume(text[n:]); bad != nil || !body.isDone() {
			return
		}
		data, err := io.ReadAll(r.Body)
		if err != nil || int64(len(data)) != body.total {
			t.Fatalf("%q: the standard library reads %d bytes of body, %v; we read %d", text, len(data), err,
				body.total)
		}
	})
}
