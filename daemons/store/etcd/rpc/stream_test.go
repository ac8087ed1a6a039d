package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"clusterctl/daemons/store/etcd/rpc"
)

var errEnough = errors.New("enough")

func watchRequest(id int64) *pb.WatchRequest {
	return &pb.WatchRequest{
		RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{WatchId: id}},
	}
}

// startWatch begins a stream on a server that handles streams with f.
func startWatch(t *testing.T, f func(pb.Watch_WatchServer) error) (*rpc.Client, *rpc.Stream, *cuttableListener) {
	t.Helper()
	_, at := serveAll(t, &testServer{answer: echoKey, watch: f})
	c := newClient(t, at)
	s, err := c.Stream(t.Context(), pb.Watch_Watch_FullMethodName, []rpc.Header{{Name: "hasleader", Value: "true"}},
		etcdMessage{watchRequest(7)})
	if err != nil {
		t.Fatal(err)
	}
	return c, s, at
}

func TestStreamMessagesArriveInOrder(t *testing.T) {
	const many = 500
	large := bytes.Repeat([]byte("x"), 100<<10) // together more than the window
	c, s, _ := startWatch(t, func(w pb.Watch_WatchServer) error {
		md, _ := metadata.FromIncomingContext(w.Context())
		first, err := w.Recv()
		if err != nil {
			return err
		}
		if got := md.Get("hasleader"); len(got) != 1 || got[0] != "true" || first.GetCreateRequest().GetWatchId() != 7 {
			return status.Errorf(codes.InvalidArgument, "begun with %v and %v", md, first)
		}
		for i := range int64(many) {
			r := &pb.WatchResponse{WatchId: i}
			if i%5 == 0 {
				r.Events = []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Value: large}}}
			}
			if err := w.Send(r); err != nil {
				return err
			}
		}
		return status.Error(codes.OutOfRange, "that is all")
	})
	next := int64(0)
	err := s.Receive(t.Context(), func(data []byte, _ bool) error {
		r := &pb.WatchResponse{}
		if err := (etcdMessage{r}).Read(data); err != nil {
			return err
		}
		if r.WatchId != next || next%5 == 0 && !bytes.Equal(r.Events[0].Kv.Value, large) {
			t.Errorf("%d came after %d", r.WatchId, next)
		}
		next++
		if next%50 == 0 { // calls work concurrently
			if _, err := callRange(t.Context(), c, []byte("key")); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	if next != many || status.Code(err) != codes.OutOfRange || status.Convert(err).Message() != "that is all" {
		t.Errorf("%d came, and then %v", next, err)
	}
	if err := s.Send(etcdMessage{watchRequest(1)}); status.Code(err) != codes.OutOfRange {
		t.Errorf("to a stream that is over: %v", err)
	}
}

func TestAMessageMayBeLargerThanTheWindow(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<19) // twice the window
	_, s, _ := startWatch(t, func(w pb.Watch_WatchServer) error {
		return w.Send(&pb.WatchResponse{Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{Value: large}}}})
	})
	err := s.Receive(t.Context(), func(data []byte, _ bool) error {
		r := &pb.WatchResponse{}
		if err := (etcdMessage{r}).Read(data); err != nil || !bytes.Equal(r.Events[0].Kv.Value, large) {
			t.Errorf("it came as %d bytes: %v", len(data), err)
		}
		return nil
	})
	if err != nil {
		t.Errorf("a server that has said all: %v", err)
	}
}

func TestStreamOnceReceivesAllMessages(t *testing.T) {
	const many = 2000
	value := bytes.Repeat([]byte("0123456789abcdef"), 1<<10) // together several windows
	_, at := serveAll(t, &testServer{all: func(r *pb.RangeRequest, to pb.KV_RangeStreamServer) error {
		for i := range many {
			kv := &mvccpb.KeyValue{Key: fmt.Append(r.Key, i), Value: value}
			if err := to.Send(&pb.RangeStreamResponse{RangeResponse: &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{
				kv}}}); err != nil {
				return err
			}
		}
		return nil
	}})
	c := newClient(t, at)
	s, err := c.StreamOnce(t.Context(), pb.KV_RangeStream_FullMethodName,
		etcdMessage{&pb.RangeRequest{Key: []byte("/")}})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	err = s.Receive(t.Context(), func(data []byte, _ bool) error {
		r := &pb.RangeStreamResponse{}
		if err := (etcdMessage{r}).Read(data); err != nil || string(r.RangeResponse.Kvs[0].Key) != fmt.Sprint("/", n) ||
			!bytes.Equal(r.RangeResponse.Kvs[0].Value, value) {
			t.Fatalf("%d. came as %d bytes: %v", n, len(data), err)
		}
		n++
		return nil
	})
	if err != nil || n != many {
		t.Errorf("%d came, and then %v", n, err)
	}
	if err := s.Send(etcdMessage{watchRequest(1)}); err == nil {
		t.Error("a message without a receiver was sent")
	}
	// A server without this call answers only that.
	_, without := serveRange(t, echoKey)
	if s, err = newClient(t, without).StreamOnce(t.Context(), pb.KV_RangeStream_FullMethodName,
		etcdMessage{&pb.RangeRequest{}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Receive(t.Context(), nil); status.Code(err) != codes.Unimplemented {
		t.Errorf("of a server that does not stream: %v", err)
	}
}

func TestSentMessagesReachTheServer(t *testing.T) {
	_, s, _ := startWatch(t, func(w pb.Watch_WatchServer) error {
		for {
			r, err := w.Recv()
			if err != nil {
				return err
			}
			if err := w.Send(&pb.WatchResponse{WatchId: r.GetCreateRequest().GetWatchId()}); err != nil {
				return err
			}
		}
	})
	const many = 10000 // together more than the server accepts at once
	at := int64(7)
	err := s.Receive(t.Context(), func(data []byte, _ bool) error {
		r := &pb.WatchResponse{}
		if err := (etcdMessage{r}).Read(data); err != nil {
			return err
		}
		if r.WatchId != at {
			t.Fatalf("%d, want %d", r.WatchId, at)
		}
		if at++; at == many {
			return errEnough
		}
		return s.Send(etcdMessage{watchRequest(at)})
	})
	if !errors.Is(err, errEnough) {
		t.Error(err)
	}
}

func TestClosedStreamsEndOnTheServer(t *testing.T) {
	done := make(chan error, 1)
	c, s, _ := startWatch(t, func(w pb.Watch_WatchServer) error {
		if err := w.Send(&pb.WatchResponse{}); err != nil {
			return err
		}
		<-w.Context().Done()
		done <- w.Context().Err()
		return w.Context().Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	err := s.Receive(ctx, func([]byte, bool) error { cancel(); return nil })
	if status.Code(err) != codes.Canceled {
		t.Errorf("who receives gets %v", err)
	}
	if err := <-done; err == nil {
		t.Error("the server was not informed")
	}
	if _, err := callRange(t.Context(), c, []byte("key")); err != nil {
		t.Errorf("the connection is of no use afterwards: %v", err)
	}
}

// A stream ends at once when its connection is lost, and the next stream uses another connection.
// Proves S12.
func TestStreamsEndWithTheirConnection(t *testing.T) {
	endless := func(w pb.Watch_WatchServer) error {
		if err := w.Send(&pb.WatchResponse{}); err != nil {
			return err
		}
		<-w.Context().Done()
		return w.Context().Err()
	}
	c, s, at := startWatch(t, endless)
	err := s.Receive(t.Context(), func([]byte, bool) error { at.closeConns(); return nil })
	if status.Code(err) != codes.Unavailable {
		t.Errorf("who receives gets %v", err)
	}
	s, err = c.Stream(t.Context(), pb.Watch_Watch_FullMethodName, nil, etcdMessage{watchRequest(8)})
	if err != nil {
		t.Fatalf("on the next connection: %v", err)
	}
	if err := s.Receive(t.Context(), func([]byte, bool) error { return errEnough }); !errors.Is(err, errEnough) {
		t.Errorf("on the next connection: %v", err)
	}
}

func TestGoAwayEndsStreams(t *testing.T) {
	sent := make(chan struct{})
	srv, at := serveAll(t, &testServer{answer: echoKey, watch: func(w pb.Watch_WatchServer) error {
		close(sent)
		<-w.Context().Done()
		return w.Context().Err()
	}})
	s, err := newClient(t, at).Stream(t.Context(), pb.Watch_Watch_FullMethodName, nil, etcdMessage{watchRequest(8)})
	if err != nil {
		t.Fatal(err)
	}
	<-sent
	stopped := make(chan struct{})
	go func() {
		srv.GracefulStop()
		close(stopped)
	}()
	if err := s.Receive(t.Context(), func([]byte, bool) error { return nil }); status.Code(err) != codes.Unavailable {
		t.Errorf("it ends with %v", err)
	}
	<-stopped
}

func TestStreamErrorsNameTheUnreachableAddress(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := silent.Addr().String()
	if err := silent.Close(); err != nil {
		t.Fatal(err)
	}
	c := rpc.New(rpc.Config{Endpoint: "http://" + address, DialTimeout: time.Second})
	t.Cleanup(c.Close)
	if _, err := c.Stream(t.Context(), "/a/b", nil,
		etcdMessage{watchRequest(8)}); status.Code(err) != codes.Unavailable ||
		!bytes.Contains([]byte(err.Error()), []byte(address)) {
		t.Errorf("got %v", err)
	}
}
