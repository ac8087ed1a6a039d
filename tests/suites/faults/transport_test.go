package faults

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// faults are injected into the requests of controllers. The zero value injects none.
type faults struct {
	random func() float64 // from 0 to 1; nil: no faults
	counts faultCounts
}

// faultCounts are the numbers of injected faults, which show that a run has tested something.
type faultCounts struct{ conflicts, refused, failed, unsent, lost, delayed, closed, expired, repeated atomic.Int64 }

func (c *faultCounts) String() string {
	return fmt.Sprintf("conflicts %d, 429 %d, 500 %d, not sent %d, answers lost %d, delayed %d, watches closed %d, "+
		"expired %d, events repeated %d", c.conflicts.Load(), c.refused.Load(), c.failed.Load(), c.unsent.Load(),
		c.lost.Load(), c.delayed.Load(), c.closed.Load(), c.expired.Load(), c.repeated.Load())
}

// seededRandom returns a function whose results are the same for the same seed, in the order of the calls.
func seededRandom(seed uint64) func() float64 {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 1))
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return r.Float64()
	}
}

// leaderTransport is the transport of one leader. It stops working when the leader is killed.
type leaderTransport struct {
	*faults
	next   http.RoundTripper
	killed chan struct{}

	mu   sync.Mutex // held while killed is closed, and while a write begins
	sent sync.WaitGroup
}

var errLeaderKilled = errors.New("the leader was killed")

// kill ends the leader, and returns when the API server has completed or refused the leader's writes. In a real
// cluster, this happens long before the lease expires.
func (l *leaderTransport) kill(end func()) {
	l.mu.Lock()
	close(l.killed)
	l.mu.Unlock()
	end()
	l.sent.Wait()
}

// send sends a request. A write completes even if its sender is killed.
func (l *leaderTransport) send(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return l.next.RoundTrip(r)
	}
	type outcome struct {
		answer *http.Response
		err    error
	}
	got := make(chan outcome, 1)
	l.mu.Lock()
	select {
	case <-l.killed:
		l.mu.Unlock()
		return nil, errLeaderKilled
	default:
	}
	l.sent.Go(func() {
		answer, err := l.next.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
		got <- outcome{answer, err}
	})
	l.mu.Unlock()
	select {
	case o := <-got:
		return o.answer, o.err
	case <-l.killed:
	case <-r.Context().Done():
	}
	go func() {
		if o := <-got; o.err == nil {
			_ = o.answer.Body.Close()
		}
	}()
	return nil, errLeaderKilled
}

func (l *leaderTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-l.killed:
		return nil, errLeaderKilled
	default:
	}
	if l.random == nil {
		return l.send(r)
	}
	if r.URL.Query().Get("watch") == "true" {
		return l.watch(r)
	}
	if l.random() < 0.3 {
		l.counts.delayed.Add(1)
		if err := l.pause(r, time.Duration(l.random()*float64(60*time.Millisecond))); err != nil {
			return nil, err
		}
	}
	writes := r.Method != http.MethodGet
	switch at := l.random(); {
	case at < 0.02:
		l.counts.refused.Add(1)
		return newAnswer(r, http.StatusTooManyRequests, "TooManyRequests"), nil
	case at < 0.04:
		l.counts.failed.Add(1)
		return newAnswer(r, http.StatusInternalServerError, "InternalError"), nil
	case at < 0.05:
		l.counts.unsent.Add(1)
		return nil, errors.New("connection refused")
	case at < 0.09 && (r.Method == http.MethodPut || r.Method == http.MethodPatch):
		l.counts.conflicts.Add(1)
		return newAnswer(r, http.StatusConflict, "Conflict"), nil
	case at < 0.12 && writes:
		got, err := l.send(r)
		if err != nil {
			return nil, err
		}
		_ = got.Body.Close()
		l.counts.lost.Add(1)
		return nil, errors.New("connection lost")
	}
	return l.send(r)
}

func (l *leaderTransport) pause(r *http.Request, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-r.Context().Done():
		return r.Context().Err()
	case <-l.killed:
		return errLeaderKilled
	}
}

// watch opens a watch that ends after a while. Its events are delayed, with a separate delay for each kind, and some
// are sent twice.
func (l *leaderTransport) watch(r *http.Request) (*http.Response, error) {
	if l.random() < 0.4 && r.URL.Query().Get("sendInitialEvents") == "" {
		l.counts.expired.Add(1)
		return newAnswer(r, http.StatusGone, "Expired"), nil
	}
	got, err := l.next.RoundTrip(r)
	if err != nil || got.StatusCode != http.StatusOK || !strings.Contains(got.Header.Get("Content-Type"), "protobuf") {
		return got, err
	}
	out, in := io.Pipe()
	ends := time.Now().Add(200*time.Millisecond + time.Duration(l.random()*float64(2*time.Second)))
	body := got.Body
	go func() {
		defer body.Close()
		for {
			event, err := readFrame(body)
			if err != nil {
				in.CloseWithError(err)
				return
			}
			if time.Now().After(ends) {
				l.counts.closed.Add(1)
				in.CloseWithError(io.EOF) // this watch does not deliver the event
				return
			}
			if l.random() < 0.1 {
				l.counts.delayed.Add(1)
				if err := l.pause(r, time.Duration(l.random()*float64(250*time.Millisecond))); err != nil {
					in.CloseWithError(err)
					return
				}
			}
			if l.random() < 0.05 {
				l.counts.repeated.Add(1)
				event = bytes.Repeat(event, 2)
			}
			if _, err := in.Write(event); err != nil {
				return
			}
		}
	}()
	got.Body = closingReader{out, body}
	return got, nil
}

// closingReader closes a reader and its source.
type closingReader struct {
	io.ReadCloser
	source io.Closer
}

func (b closingReader) Close() error { return errors.Join(b.ReadCloser.Close(), b.source.Close()) }

// readFrame reads one event of a protobuf watch, with the four bytes of its length.
func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	event := make([]byte, 4+binary.BigEndian.Uint32(size[:]))
	copy(event, size[:])
	_, err := io.ReadFull(r, event[4:])
	return event, err
}

func newAnswer(r *http.Request, code int, reason string) *http.Response {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	text := fmt.Sprintf(
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"a fault","reason":%q,"code":%d}`,
		reason,
		code,
	)
	return &http.Response{
		StatusCode: code, Status: strconv.Itoa(code) + " " + http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1,
		Header: http.Header{
			"Content-Type": {"application/json"},
		}, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)), Request: r,
	}
}
