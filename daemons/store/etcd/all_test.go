package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"clusterctl/daemons/store"
	"clusterctl/daemons/store/etcd"
	"clusterctl/daemons/store/storetest"
)

// oldMember is a member from before 3.7. It forwards requests to a real member, and supports no streams.
type oldMember struct {
	pb.UnimplementedKVServer
	real      pb.KVClient
	reads     int
	dropsLeft int // number of proposals that it drops, like a leader that hands over
}

func (o *oldMember) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	o.reads++
	return o.real.Range(ctx, r)
}

func (o *oldMember) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if o.dropsLeft > 0 {
		o.dropsLeft--
		return nil, errors.New("raft proposal dropped")
	}
	return o.real.Txn(ctx, r)
}

// startOldMember starts a member in front of a real one, and opens a store over it.
func startOldMember(t *testing.T) (*oldMember, *etcd.Store) {
	t.Helper()
	to, err := grpc.NewClient("passthrough:///"+storetest.Etcd(t)[len("http://"):],
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = to.Close() })
	member := &oldMember{real: pb.NewKVClient(to)}
	s := serveMember(t, func(server *grpc.Server) { pb.RegisterKVServer(server, member) })
	return member, s
}

// serveMember starts a member with some services, and opens a store over it.
func serveMember(t *testing.T, register func(*grpc.Server)) *etcd.Store {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, done := grpc.NewServer(), make(chan error, 1)
	register(server)
	go func() { done <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	s, err := etcd.Open(etcd.Config{Endpoints: []string{ln.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A leader that hands over, as one that stops does, drops writes for a moment. These are repeated, and the client does
// not notice.
// Proves S12.
func TestDroppedWritesAreRepeated(t *testing.T) {
	member, s := startOldMember(t)
	member.dropsLeft = 3
	r, err := s.Commit(t.Context(),
		store.Txn{Guards: []store.Guard{{Key: "/a"}}, Puts: []store.Put{{Key: "/a", Value: []byte("v")}}})
	if err != nil || !r.Done || member.dropsLeft != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	member.dropsLeft = 1 << 30
	if _, err := s.Commit(ctx, store.Txn{Puts: []store.Put{{Key: "/b", Value: []byte("v")}}}); err == nil {
		t.Error("it goes on after its client has gone")
	}
}

// A stopping member answers its last calls with an empty HTTP response. The reads are repeated.
// Proves S12.
func TestReadsOfStoppingMembersAreRepeated(t *testing.T) {
	to, err := grpc.NewClient("passthrough:///"+storetest.Etcd(t)[len("http://"):],
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = to.Close() })
	calls := grpc.NewServer()
	pb.RegisterKVServer(calls, &oldMember{real: pb.NewKVClient(to)})
	var empty atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if empty.Add(-1) >= 0 {
			return
		}
		calls.ServeHTTP(w, r)
	}))
	server.Config.Protocols = &http.Protocols{}
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	s, err := etcd.Open(etcd.Config{Endpoints: []string{server.Listener.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for n := range int32(5) {
		empty.Store(n)
		if _, err := s.Revision(t.Context()); err != nil {
			t.Errorf("after %d empty answers: %v", n, err)
		}
	}
}

func TestAllReadsFromOldMembers(t *testing.T) {
	member, s := startOldMember(t)
	const many, together = 4500, 100
	for i := 0; i < many; i += together {
		var puts []store.Put
		for n := i; n < i+together; n++ {
			puts = append(puts, store.Put{Key: fmt.Sprintf("/a/%04d", n), Value: []byte("v")})
		}
		if _, err := s.Commit(t.Context(), store.Txn{Puts: puts}); err != nil {
			t.Fatal(err)
		}
	}
	before, err := s.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	member.reads = 0
	n := 0
	revision, err := s.All(t.Context(), "/a/", func(kvs []store.KeyValue) error {
		for _, kv := range kvs {
			if kv.Key != fmt.Sprintf("/a/%04d", n) || string(kv.Value) != "v" || kv.Revision == 0 {
				return fmt.Errorf("%d. is %+v", n, kv)
			}
			n++
		}
		// this change is not part of All's result
		_, err := s.Commit(t.Context(), store.Txn{Deletes: []string{"/a/4499"}})
		return err
	})
	if err != nil || n != many || revision != before || member.reads != 4 { // one of them identifies the cluster
		t.Errorf("%d keys at %d in %d pages, want %d at %d in 4: %v", n, revision, member.reads, many, before, err)
	}
}
