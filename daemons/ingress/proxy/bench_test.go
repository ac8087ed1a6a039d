package proxy

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
)

// BenchmarkRequest measures one request, including the client, the backend and the kernel's work: through the engine,
// and through the reverse proxy of net/http.
func BenchmarkRequest(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello")
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer nc.Close()
				in := make([]byte, 4096)
				for {
					if _, err := nc.Read(in); err != nil {
						return
					}
					if _, err := nc.Write(answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	p := startProxy(b, nil)
	p.addRoute("a.example", "/", []string{ln.Addr().String()})
	request := []byte("GET /api/v1/things?limit=10 HTTP/1.1\r\nHost: a.example\r\nUser-Agent: bench\r\nAccept: " +
		"*/*\r\nAccept-Encoding: gzip\r\n\r\n")
	library := httptest.NewServer(newReverseProxy(ln.Addr().String()))
	defer library.Close()
	for name, address := range map[string]string{"engine": p.plain.Addr().String(),
		"library": library.Listener.Addr().String()} {
		for _, clients := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s, %d connections", name, clients), func(b *testing.B) {
				sendRequests(b, address, clients, request)
			})
		}
	}
	b.Run("head", func(b *testing.B) {
		c := &conn{e: &Engine{}, ip: []byte("192.0.2.1")}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.req.parse(request); err != nil {
				b.Fatal(err)
			}
			c.out = c.appendRequest(c.out[:0], emptyRule)
		}
	})
}

// newReverseProxy returns net/http's reverse proxy to an address. It keeps as many idle connections as there are
// clients.
func newReverseProxy(to string) http.Handler {
	p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: to})
	p.Transport = &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}
	return p
}

// sendRequests sends requests over a number of connections for each processor.
func sendRequests(b *testing.B, address string, clients int, request []byte) {
	b.ReportAllocs()
	b.SetParallelism(clients)
	b.RunParallel(func(pb *testing.PB) {
		nc, err := net.Dial("tcp", address)
		if err != nil {
			b.Error(err)
			return
		}
		defer nc.Close()
		in := make([]byte, 4096)
		for pb.Next() {
			if _, err := nc.Write(request); err != nil {
				b.Error(err)
				return
			}
			if n, err := nc.Read(in); err != nil || string(in[9:12]) != "200" {
				b.Errorf("%q, %v", in[:n], err)
				return
			}
		}
	})
}
