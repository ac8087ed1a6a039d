package proxy

import (
	"fmt"
	"net"
	"testing"
)

// BenchmarkRequest measures one request, including the client, the backend and the kernel's work.
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
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprint(clients, " connections"), func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(clients)
			b.RunParallel(func(pb *testing.PB) {
				nc, err := net.Dial("tcp", p.plain.Addr().String())
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
		})
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
