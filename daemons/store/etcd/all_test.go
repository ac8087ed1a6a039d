package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"clusterctl/daemons/store"
	"clusterctl/daemons/store/etcd"
	"clusterctl/daemons/store/storetest"
)

// older is a member from before 3.7: it asks a real one what it is asked, and streams nothing.
type older struct {
	pb.UnimplementedKVServer
	real  pb.KVClient
	asked int
}

func (o *older) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	o.asked++
	return o.real.Range(ctx, r)
}

func (o *older) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return o.real.Txn(ctx, r)
}

func TestAllIsReadOfAnOlderMemberToo(t *testing.T) {
	to, err := grpc.NewClient("passthrough:///"+storetest.Etcd(t)[len("http://"):], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = to.Close() })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	member, server, done := &older{real: pb.NewKVClient(to)}, grpc.NewServer(), make(chan error, 1)
	pb.RegisterKVServer(server, member)
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
	member.asked = 0
	n := 0
	revision, err := s.All(t.Context(), "/a/", func(kvs []store.KV) error {
		for _, kv := range kvs {
			if kv.Key != fmt.Sprintf("/a/%04d", n) || string(kv.Value) != "v" || kv.Revision == 0 {
				return fmt.Errorf("%d. is %+v", n, kv)
			}
			n++
		}
		_, err := s.Commit(t.Context(), store.Txn{Deletes: []string{"/a/4499"}}) // which is for whoever asks next
		return err
	})
	if err != nil || n != many || revision != before || member.asked != 4 { // once before which cluster it is of
		t.Errorf("%d keys at %d in %d pages, want %d at %d in 4: %v", n, revision, member.asked, many, before, err)
	}
}
