package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// loadClients is a set of clients that each send the next request as soon as the last is answered. A client connects
// again if an answer announces that the connection ends, or if the connection is closed before a request. Every other
// error counts as a failed request.
type loadClients struct {
	address string
	conns   int
	roots   *x509.CertPool // nil: without TLS

	mu          sync.Mutex
	answered    int
	failed      int
	latencies   []time.Duration
	errorCounts map[string]int
}

var requestText = []byte(
	"GET /shop/of/books?page=7 HTTP/1.1\r\nHost: " + hostName + "\r\nUser-Agent: bench\r\nAccept: " +
		"*/*\r\nAccept-Encoding: gzip\r\n\r\n",
)

func (l *loadClients) run(d time.Duration) error {
	l.answered, l.failed, l.latencies, l.errorCounts = 0, 0, nil, map[string]int{}
	until := time.Now().Add(d)
	var wg sync.WaitGroup
	for range l.conns {
		wg.Go(func() { l.client(until) })
	}
	wg.Wait()
	if l.answered == 0 {
		return fmt.Errorf("no request was answered: %v", l.errorCounts)
	}
	slices.Sort(l.latencies)
	return nil
}

func (l *loadClients) client(until time.Time) {
	var took []time.Duration
	answered, failed := 0, 0
	reasons := map[string]int{}
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.answered, l.failed, l.latencies = l.answered+answered, l.failed+failed, append(l.latencies, took...)
		for k, n := range reasons {
			l.errorCounts[k] += n
		}
	}()
	var nc net.Conn
	var in *bufio.Reader
	for time.Now().Before(until) {
		if nc == nil {
			var err error
			if nc, err = l.dial(); err != nil {
				failed++
				reasons[err.Error()]++
				time.Sleep(time.Millisecond)
				continue
			}
			in = bufio.NewReader(nc)
		}
		start := time.Now()
		_ = nc.SetDeadline(start.Add(10 * time.Second))
		last, err := sendRequest(nc, in)
		if err != nil {
			failed++
			reasons[err.Error()]++
		} else {
			answered++
			took = append(took, time.Since(start))
		}
		if last || err != nil {
			_ = nc.Close()
			nc = nil
		}
	}
	if nc != nil {
		_ = nc.Close()
	}
}

func (l *loadClients) dial() (net.Conn, error) {
	nc, err := net.DialTimeout("tcp", l.address, 10*time.Second)
	if err != nil || l.roots == nil {
		return nc, err
	}
	secure := tls.Client(nc, &tls.Config{RootCAs: l.roots, ServerName: hostName, NextProtos: []string{"http/1.1"}})
	_ = secure.SetDeadline(time.Now().Add(10 * time.Second))
	if err := secure.Handshake(); err != nil {
		_ = nc.Close()
		return nil, err
	}
	return secure, nil
}

// sendRequest sends one request and reads its answer. last is true if the connection ends with it.
func sendRequest(nc net.Conn, in *bufio.Reader) (last bool, err error) {
	if _, err := nc.Write(requestText); err != nil {
		return true, err
	}
	length := -1
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return true, err
		}
		text := strings.TrimRight(string(line), "\r\n")
		if first {
			if !strings.HasPrefix(text, "HTTP/1.1 200") {
				return true, errors.New(text)
			}
			continue
		}
		if text == "" {
			break
		}
		field, value, _ := strings.Cut(text, ": ")
		switch {
		case strings.EqualFold(field, "Content-Length"):
			if length, err = strconv.Atoi(value); err != nil {
				return true, err
			}
		case strings.EqualFold(field, "Connection"):
			last = strings.EqualFold(value, "close")
		}
	}
	if length != len(responseBody) {
		return true, fmt.Errorf("an answer of %d bytes", length)
	}
	_, err = io.CopyN(io.Discard, in, int64(length))
	return last, err
}

func (l *loadClients) percentile(p int) float64 {
	return float64(l.latencies[min(len(l.latencies)*p/100, len(l.latencies)-1)].Microseconds()) / 1000
}

var responseBody = slices.Repeat([]byte("0123456789abcdef"), 64)

// backends are endpoints that answer with one KiB.
type backends struct {
	servers     []*http.Server
	addressList []string
	retired     sync.WaitGroup
}

func newBackends(n int) (*backends, error) {
	p := &backends{}
	for range n {
		if err := p.add(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *backends) add() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write(responseBody)
	})}
	go func() { _ = s.Serve(ln) }()
	p.servers, p.addressList = append(p.servers, s), append(p.addressList, ln.Addr().String())
	return nil
}

func (p *backends) addresses() []string { return slices.Clone(p.addressList) }
