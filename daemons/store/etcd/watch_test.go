package etcd_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"clusterctl/daemons/store"
)

// scriptedMember answers reads with an empty response, and each request of a watch with the next message.
type scriptedMember struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	messages []*pb.WatchResponse
}

func (m *scriptedMember) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{ClusterId: 1, RaftTerm: 1, Revision: 1}}, nil
}

func (m *scriptedMember) Watch(stream pb.Watch_WatchServer) error {
	for _, message := range m.messages {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		if err := stream.Send(message); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return nil
}

// etcd holds the events of a new watch back until it has sent the created message, but not the progress that was
// requested meanwhile. Such progress includes events that are still to come.
// Proves S12.
func TestProgressBeforeTheCreatedMessageIsIgnored(t *testing.T) {
	header := func(revision int64) *pb.ResponseHeader { return &pb.ResponseHeader{Revision: revision} }
	event := &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("/a"), Value: []byte("v"), ModRevision: 5}}
	member := &scriptedMember{messages: []*pb.WatchResponse{
		{Header: header(5), WatchId: -1},
		{Header: header(5), Created: true},
		{Header: header(5), Events: []*mvccpb.Event{event}},
		{Header: header(7), WatchId: -1},
	}}
	s := serveMember(t, func(server *grpc.Server) {
		pb.RegisterKVServer(server, member)
		pb.RegisterWatchServer(server, member)
	})
	ctx, cancel := context.WithCancel(t.Context())
	var requesting sync.WaitGroup
	defer requesting.Wait()
	defer cancel()
	requesting.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			_ = s.Progress(ctx)
			<-tick.C
		}
	})
	enough := errors.New("enough")
	reached, events := int64(0), 0
	err := s.Watch(ctx, "/", 4, func(b store.Batch) error {
		for _, e := range b.Events {
			if events++; e.Revision <= reached {
				t.Errorf("revision %d was reached before its event", reached)
			}
		}
		if reached = b.Revision; reached == 7 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || events != 1 {
		t.Errorf("%d events: %v", events, err)
	}
}
