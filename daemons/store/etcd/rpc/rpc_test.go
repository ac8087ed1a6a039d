package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"clusterctl/daemons/store/etcd/rpc"
)

// testServer answers calls with its functions.
type testServer struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	answer func(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error)
	watch  func(pb.Watch_WatchServer) error
	all    func(*pb.RangeRequest, pb.KV_RangeStreamServer) error
}

func (s *testServer) RangeStream(r *pb.RangeRequest, to pb.KV_RangeStreamServer) error {
	if s.all == nil {
		return s.UnimplementedKVServer.RangeStream(r, to)
	}
	return s.all(r, to)
}

func (s *testServer) Watch(w pb.Watch_WatchServer) error { return s.watch(w) }

func (s *testServer) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return s.answer(ctx, r)
}

type rangeFunc = func(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error)

// cuttableListener is a listener whose connections can be cut.
type cuttableListener struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
}

func (l *cuttableListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns = append(l.conns, c)
	}
	return c, err
}

func (l *cuttableListener) closeConns() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// serveRange serves until the test or the returned server ends.
func serveRange(t testing.TB, f rangeFunc) (*grpc.Server, *cuttableListener) {
	t.Helper()
	return serveAll(t, &testServer{answer: f})
}

func serveAll(t testing.TB, all *testServer) (*grpc.Server, *cuttableListener) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := &cuttableListener{Listener: listener}
	s := grpc.NewServer()
	pb.RegisterKVServer(s, all)
	pb.RegisterWatchServer(s, all)
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return s, ln
}

func newClient(t testing.TB, at *cuttableListener) *rpc.Client {
	t.Helper()
	c := rpc.New(
		rpc.Config{
			Endpoint:    "http://" + at.Addr().String(),
			DialTimeout: 10 * time.Second,
			Headers:     []rpc.Header{{Name: "client-api-version", Value: "3.7"}},
		},
	)
	t.Cleanup(c.Close)
	return c
}

func callRange(ctx context.Context, c *rpc.Client, key []byte) (*pb.RangeResponse, error) {
	r := &pb.RangeResponse{}
	return r, c.Invoke(ctx, pb.KV_Range_FullMethodName, etcdMessage{&pb.RangeRequest{Key: key}}, etcdMessage{r})
}

// etcdMessage is one of etcd's messages, in their own encoding.
type etcdMessage struct{ proto.Message }

func (m etcdMessage) Append(to []byte) []byte {
	to, err := proto.MarshalOptions{}.MarshalAppend(to, m.Message)
	if err != nil {
		panic(err)
	}
	return to
}

func (m etcdMessage) Read(data []byte) error { return proto.Unmarshal(data, m.Message) }

// callUntilConnected makes a call, and repeats it until there is a connection.
func callUntilConnected(t testing.TB, c *rpc.Client, key string) (*pb.RangeResponse, error) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); ; <-tick.C {
		r, err := callRange(t.Context(), c, []byte(key))
		if !errors.Is(err, rpc.ErrNotMade) {
			return r, err
		}
		if time.Now().After(end) {
			t.Fatal("there is no connection")
		}
	}
}

func echoKey(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Key: r.Key}}}, nil
}

func TestConcurrentCallsGetTheirResponses(t *testing.T) {
	_, at := serveRange(t, echoKey)
	c := newClient(t, at)
	if _, err := callUntilConnected(t, c, "first"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for worker := range 32 {
		all.Go(func() {
			for i := range 40 {
				key := bytes.Repeat(fmt.Appendf(nil, "%d/%d ", worker, i), 1+i*20)
				r, err := callRange(t.Context(), c, key)
				if errors.Is(err, rpc.ErrNotMade) {
					continue // no room at the moment
				}
				if err != nil || len(r.Kvs) != 1 || !bytes.Equal(r.Kvs[0].Key, key) {
					t.Errorf("call %d of %d: %v", i, worker, err)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestLargeResponsesAreComplete(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // four times the window
	_, at := serveRange(t, func(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
		return &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Key: r.Key, Value: large}}}, nil
	})
	c := newClient(t, at)
	for range 3 {
		if r, err := callUntilConnected(t, c, "large"); err != nil || !bytes.Equal(r.Kvs[0].Value, large) {
			t.Fatalf("a large answer: %v", err)
		}
	}
}

func TestServerErrorsAreReturned(t *testing.T) {
	_, at := serveRange(t, func(ctx context.Context, _ *pb.RangeRequest) (*pb.RangeResponse, error) {
		if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("client-api-version")) != 1 {
			return nil, status.Error(codes.InvalidArgument, "no version")
		}
		return nil, status.Error(codes.OutOfRange, "50 % später\nas \"it\" is")
	})
	_, err := callUntilConnected(t, newClient(t, at), "key")
	if status.Code(err) != codes.OutOfRange || status.Convert(err).Message() != "50 % später\nas \"it\" is" {
		t.Errorf("got %v", err)
	}
}

func TestCancelledCallsEndOnTheServer(t *testing.T) {
	started, done := make(chan bool, 1), make(chan error, 1)
	_, at := serveRange(t, func(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
		if string(r.Key) == "first" {
			return &pb.RangeResponse{}, nil
		}
		_, bounded := ctx.Deadline()
		started <- bounded
		<-ctx.Done()
		done <- ctx.Err()
		return nil, ctx.Err()
	})
	c := newClient(t, at)
	if _, err := callUntilConnected(t, c, "first"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	failed := make(chan error, 1)
	go func() {
		_, err := callRange(ctx, c, []byte("second"))
		failed <- err
	}()
	if !<-started {
		t.Error("the server does not know until when the caller waits")
	}
	cancel()
	if err := <-failed; status.Code(err) != codes.Canceled {
		t.Errorf("the caller gets %v", err)
	}
	if err := <-done; err == nil {
		t.Error("the server was not informed")
	}
	if _, err := callRange(t.Context(), c, []byte("first")); err != nil {
		t.Errorf("the connection is of no use afterwards: %v", err)
	}
}

func TestTooLargeRequestsAreNotSent(t *testing.T) {
	_, at := serveRange(t, func(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
		if len(r.Key) > 1<<20 {
			t.Error("a call came that does not fit")
		}
		return &pb.RangeResponse{}, nil
	})
	c := newClient(t, at)
	if _, err := callUntilConnected(t, c, "first"); err != nil {
		t.Fatal(err)
	}
	if _, err := callRange(t.Context(), c, make([]byte, 3<<20)); !errors.Is(err, rpc.ErrNotMade) {
		t.Errorf("got %v", err)
	}
}

// startUnansweredCall makes a call that is not answered. failed receives the call's error.
func startUnansweredCall(t *testing.T) (c *rpc.Client, at *cuttableListener, failed chan error) {
	t.Helper()
	started, failed := make(chan struct{}, 1), make(chan error, 1)
	_, at = serveRange(t, func(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
		if string(r.Key) == "waits" {
			started <- struct{}{}
			<-ctx.Done()
		}
		return &pb.RangeResponse{}, nil
	})
	c = newClient(t, at)
	if _, err := callUntilConnected(t, c, "first"); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := callRange(t.Context(), c, []byte("waits"))
		failed <- err
	}()
	<-started
	return c, at, failed
}

// If a connection is lost, the outcome of its writes is reported as unknown. The client reconnects by itself.
// Proves S12.
func TestLostConnectionsAreReplaced(t *testing.T) {
	c, at, failed := startUnansweredCall(t)
	at.closeConns()
	if err := <-failed; status.Code(err) != codes.Unavailable {
		t.Errorf("the caller gets %v", err)
	}
	if _, err := callUntilConnected(t, c, "again"); err != nil {
		t.Errorf("on the next connection: %v", err)
	}
}

func TestGoAwayFinishesBegunCalls(t *testing.T) {
	started, release := make(chan struct{}, 1), make(chan struct{})
	s, at := serveRange(t, func(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
		if string(r.Key) == "waits" {
			started <- struct{}{}
			<-release
		}
		return &pb.RangeResponse{Count: 7}, nil
	})
	c := newClient(t, at)
	if _, err := callUntilConnected(t, c, "first"); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		r, err := callRange(t.Context(), c, []byte("waits"))
		if err == nil && r.Count != 7 {
			err = fmt.Errorf("it is %d", r.Count)
		}
		answered <- err
	}()
	<-started
	stopped := make(chan struct{})
	go func() {
		s.GracefulStop()
		close(stopped)
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for err := error(nil); !errors.Is(err, rpc.ErrNotMade); <-tick.C {
		if _, err = callRange(t.Context(), c, []byte("more")); err != nil && !errors.Is(err, rpc.ErrNotMade) {
			t.Fatalf("a further call: %v", err)
		}
	}
	close(release)
	if err := <-answered; err != nil {
		t.Errorf("the call that had begun: %v", err)
	}
	<-stopped
}

func TestCloseEndsCalls(t *testing.T) {
	c, _, failed := startUnansweredCall(t)
	c.Close()
	if err := <-failed; status.Code(err) != codes.Unavailable {
		t.Errorf("the caller gets %v", err)
	}
	if _, err := callRange(t.Context(), c, []byte("later")); !errors.Is(err, rpc.ErrNotMade) {
		t.Errorf("a closed client: %v", err)
	}
}

// A stopping member closes its streams without a status. Such a call has no outcome.
func TestResponsesWithoutAStatusAreErrors(t *testing.T) {
	ends := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
	}), Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute}
	ends.Protocols.SetUnencryptedHTTP2(true)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- ends.Serve(ln) }()
	t.Cleanup(func() {
		_ = ends.Close()
		<-done
	})
	if _, err := callUntilConnected(t, newClient(t, &cuttableListener{Listener: ln}),
		"key"); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v", err)
	}
}

func TestAddressesWithoutASchemeAreRefused(t *testing.T) {
	for _, endpoint := range []string{"127.0.0.1:2379", "unix:///run/etcd.sock", "unixs://localhost:2379", "localhost",
		""} {
		c := rpc.New(rpc.Config{Endpoint: endpoint, DialTimeout: time.Second})
		if _, err := callRange(t.Context(), c, []byte("key")); !errors.Is(err, rpc.ErrNotMade) {
			t.Errorf("%q: %v", endpoint, err)
		}
		c.Close()
	}
}

// BenchmarkCall makes calls by this package and by gRPC's client.
func BenchmarkCall(b *testing.B) {
	_, at := serveRange(b, echoKey)
	c := newClient(b, at)
	if _, err := callUntilConnected(b, c, "a"); err != nil {
		b.Fatal(err)
	}
	conn, err := grpc.NewClient(at.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	library := pb.NewKVClient(conn)
	for name, call := range map[string]func(context.Context) error{
		"own": func(ctx context.Context) error {
			_, err := callRange(ctx, c, []byte("key"))
			return err
		},
		"library": func(ctx context.Context) error {
			_, err := library.Range(ctx, &pb.RangeRequest{Key: []byte("key")})
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := call(b.Context()); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
