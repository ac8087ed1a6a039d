package etcd_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"clusterctl/daemons/store"
	"clusterctl/daemons/store/etcd"
	"clusterctl/daemons/store/storetest"
)

func TestSilentMembersAreReplacedWithinSeconds(t *testing.T) {
	real := storetest.Etcd(t)
	first := newRelay(t, strings.TrimPrefix(real, "http://"))
	s, err := etcd.Open(etcd.Config{Endpoints: []string{"http://" + first.address, real}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	put := func(value string) (store.Result, error) {
		return s.Commit(ctx, store.Txn{Puts: []store.Put{{Key: "/a", Value: []byte(value)}}})
	}
	before, err := put("before")
	if err != nil {
		t.Fatal(err)
	}
	watch := storetest.Watch(ctx, s, "/", before.Revision)

	first.silence()
	start := time.Now()
	if _, err := put("lost"); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("a write to a silent member: %v, want that the store does not answer", err)
	}
	after, err := put("after")
	if err != nil {
		t.Fatalf("a write after the member was left: %v", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %s to leave the member", took)
	}
	var last storetest.WatchResult
	for last = range watch {
	}
	if !errors.Is(last.Err, store.ErrUnavailable) {
		t.Fatalf("the watch ended with %v, want that the store does not answer", last.Err)
	}
	for batch := range storetest.Watch(ctx, s, "/", before.Revision) {
		if batch.Err != nil {
			t.Fatalf("the watch did not go on at its place: %v", batch.Err)
		}
		if batch.Revision >= after.Revision {
			return
		}
	}
	t.Fatal("the watch ended without having seen the write")
}

func TestWritesWithoutALeaderAreUnavailable(t *testing.T) {
	endpoint := storetest.Etcd(t)
	s, err := etcd.Open(etcd.Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	put := func() error {
		_, err := s.Commit(ctx, store.Txn{Puts: []store.Put{{Key: "/a"}}})
		return err
	}
	if err := put(); err != nil {
		t.Fatal(err)
	}
	members, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = members.Close() })
	// A second member that never starts takes the majority from the first, which soon has no leader.
	if _, err := members.MemberAdd(ctx, []string{"http://127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := put(); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "etcd has no leader") {
			t.Fatalf("a write without a leader: %v, want that the store does not answer, and why", err)
		}
	}
	if ctx.Err() != nil {
		t.Error("three writes took a minute to end")
	}
}

func TestCallsFailAtOnceWithoutMembers(t *testing.T) {
	real := storetest.Etcd(t)
	var endpoints []string
	var relays []*silentRelay
	for range 3 {
		r := newRelay(t, strings.TrimPrefix(real, "http://"))
		relays, endpoints = append(relays, r), append(endpoints, "http://"+r.address)
	}
	s, err := etcd.Open(etcd.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := s.Commit(ctx, store.Txn{Puts: []store.Put{{Key: "/a"}}}); err != nil {
		t.Fatal(err)
	}
	for _, r := range relays {
		r.silence()
	}
	for {
		start := time.Now()
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := s.Commit(call, store.Txn{Puts: []store.Put{{Key: "/a"}}})
		inTime := call.Err() == nil
		cancel()
		if !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("a write to silent members: %v, want that the store does not answer", err)
		}
		if inTime && strings.Contains(err.Error(), "none has answered") {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("after a minute of silence a write still takes %s: %v", time.Since(start), err)
		}
	}
}

// silentRelay forwards connections until the test silences it, like a machine without a network.
type silentRelay struct {
	address  string
	silenced chan struct{}
	once     sync.Once
}

func (r *silentRelay) silence() { r.once.Do(func() { close(r.silenced) }) }

func newRelay(t *testing.T, target string) *silentRelay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &silentRelay{address: l.Addr().String(), silenced: make(chan struct{})}
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	ended := false
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				_ = in.Close()
				continue
			}
			mu.Lock()
			if ended {
				_, _ = in.Close(), out.Close()
			}
			open = append(open, in, out)
			mu.Unlock()
			all.Go(func() { _, _ = io.Copy(&silencedConn{out, r.silenced}, in) })
			all.Go(func() { _, _ = io.Copy(&silencedConn{in, r.silenced}, out) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.silence()
		mu.Lock()
		ended = true // also for connections that are being accepted
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return r
}

// silencedConn discards written data once it is quiet.
type silencedConn struct {
	net.Conn
	silenced chan struct{}
}

func (s *silencedConn) Write(data []byte) (int, error) {
	select {
	case <-s.silenced:
		return len(data), nil
	default:
		return s.Conn.Write(data)
	}
}
