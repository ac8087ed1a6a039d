package proxy

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"clusterctl/daemons/ingress/route"
)

// startRecorder starts a server with empty responses. lines delivers the request lines that it receives.
func startRecorder(t *testing.T) (address string, lines chan string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	lines = make(chan string, 16)
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer nc.Close()
				b := make([]byte, 4096)
				n, err := nc.Read(b)
				if err != nil {
					return
				}
				first, _, _ := bytes.Cut(b[:n], []byte("\r\n"))
				lines <- string(first)
				_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			}()
		}
	}()
	return ln.Addr().String(), lines
}

// askHTTP2 sends one HTTP/2 request with the given pseudo-header fields. It returns the status, or "reset" if the
// stream was reset.
func (p *testProxy) askHTTP2(method, path, authority string) string {
	p.t.Helper()
	nc, err := net.Dial("tcp", p.plain.Addr().String())
	if err != nil {
		p.t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(nc, http2.ClientPreface); err != nil {
		p.t.Fatal(err)
	}
	f := http2.NewFramer(nc, nc)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	for _, h := range [][2]string{{":method", method}, {":scheme", "http"}, {":authority", authority},
		{":path", path}} {
		_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	if err := f.WriteSettings(); err != nil {
		p.t.Fatal(err)
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndStream: true,
		EndHeaders: true}); err != nil {
		p.t.Fatal(err)
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			p.t.Fatalf("%s %s: %v", method, path, err)
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			return frame.PseudoValue("status")
		case *http2.RSTStreamFrame:
			return "reset"
		}
	}
}

// The method and path of an HTTP/2 request can contain spaces. In an HTTP/1 request line, they would form a request
// other than the matched one.
func TestHTTP2FieldsCannotInjectARequestLine(t *testing.T) {
	p := startProxy(t, nil)
	address, lines := startRecorder(t)
	p.addRoute("a.example", "/public", []string{address})
	if got := p.askHTTP2("GET", "/public/%20?a=%20", "a.example"); got != "200" {
		t.Fatalf("an ordinary request: %s", got)
	}
	if got := <-lines; got != "GET /public/%20?a=%20 HTTP/1.1" {
		t.Fatalf("the backend got %q", got)
	}
	for _, c := range [][2]string{
		{"GET /admin HTTP/1.1", "/public"}, {"G(T", "/public"}, {"GET", "/public HTTP/1.1"}, {"GET", "/public?a b"},
		{"GET", "/public#x"},
		{"GET", "/public/\xc2\xa0 HTTP/1.0"},
	} {
		if got := p.askHTTP2(c[0], c[1], "a.example"); got != "400" && got != "reset" {
			t.Errorf("%q %q: %s", c[0], c[1], got)
		}
	}
	select {
	case got := <-lines:
		t.Errorf("the backend was asked %q", got)
	default: // all rejected requests came before the forwarded one
	}
}

// A rewritten path is always valid in a request line.
func TestARewrittenPathCannotInjectARequestLine(t *testing.T) {
	p := startProxy(t, nil)
	address, lines := startRecorder(t)
	b := &route.Backend{
		Key: route.BackendKey{Service: route.Key{Namespace: "default", Name: "web"}, Port: "80", Protocol: route.HTTP},
	}
	b.Targets = p.e.Targets(b.Key)
	setEndpoints(b, address)
	p.setRule(
		&route.Rule{
			Filters:  route.Filters{Rewrite: &route.Rewrite{Prefix: &route.Swap{From: "/shop", To: "/y"}}},
			Backends: []route.Weighted{{Backend: b, Weight: 1}},
		},
	)
	for _, path := range []string{"/shop/a%0d%0aX:%20y", "/shop/%20HTTP/1.1", "/shop/%3f", "/shop/%23"} {
		nc, in := p.sendRaw("GET " + path + " HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
		if status, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(status, "HTTP/1.1 200") {
			t.Errorf("%s: %q %v", path, status, err)
			continue
		}
		nc.Close()
		got := strings.ToLower(<-lines)
		if want := strings.ToLower("GET /y" + strings.TrimPrefix(path, "/shop") + " HTTP/1.1"); got != want {
			t.Errorf("%s: the backend got %q, want %q", path, got, want)
		}
	}
}
