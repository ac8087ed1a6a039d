package etcd

import (
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"clusterctl/daemons/store"
)

// mustEqualMessage checks that an encoded request equals one of etcd's own messages.
func mustEqualMessage(t *testing.T, laidOut []byte, into, want proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(laidOut, into); err != nil {
		t.Fatalf("%x: %v", laidOut, err)
	}
	if !proto.Equal(into, want) {
		t.Errorf("laid out is\n%v\nwant\n%v", into, want)
	}
}

func TestRequestsEqualEtcdMessages(t *testing.T) {
	long := make([]byte, 300)
	for name, c := range map[string]struct {
		txn  txn
		want *pb.TxnRequest
	}{
		"nothing": {txn{}, &pb.TxnRequest{}},
		"a new key": {
			txn{Txn: store.Txn{Guards: []store.Guard{{Key: "/a"}}, Puts: []store.Put{{Key: "/a", Value: []byte("v")}}},
				leases: []int64{0}},
			&pb.TxnRequest{
				Compare: []*pb.Compare{{Key: []byte("/a"), Target: pb.Compare_MOD,
					TargetUnion: &pb.Compare_ModRevision{}}},
				Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(
					"/a"), Value: []byte("v")}}}},
				Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{
					Key: []byte("/a")}}}},
			},
		},
		"several, long, with leases": {
			txn{Txn: store.Txn{
				Guards:  []store.Guard{{Key: "/a", Revision: 1 << 40}, {Key: string(long), Revision: 3}},
				Puts:    []store.Put{{Key: "/a", Value: long}, {Key: string(long)}},
				Deletes: []string{"/b", string(long)},
			}, leases: []int64{1 << 60, 0}},
			&pb.TxnRequest{
				Compare: []*pb.Compare{
					{Key: []byte("/a"), Target: pb.Compare_MOD,
						TargetUnion: &pb.Compare_ModRevision{ModRevision: 1 << 40}},
					{Key: long, Target: pb.Compare_MOD, TargetUnion: &pb.Compare_ModRevision{ModRevision: 3}},
				},
				Success: []*pb.RequestOp{
					{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("/a"), Value: long,
						Lease: 1 << 60}}},
					{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: long}}},
					{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(
						"/b")}}},
					{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: long}}},
				},
				Failure: []*pb.RequestOp{
					{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("/a")}}},
					{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: long}}},
				},
			},
		},
	} {
		t.Run(name, func(t *testing.T) { mustEqualMessage(t, c.txn.Append(nil), &pb.TxnRequest{}, c.want) })
	}
	mustEqualMessage(t, (&getRequest{key: "/a", countOnly: true}).Append(nil), &pb.RangeRequest{},
		&pb.RangeRequest{Key: []byte("/a"), CountOnly: true})
	mustEqualMessage(t, (&rangeRequest{key: "/a/", end: "/a0"}).Append(nil), &pb.RangeRequest{},
		&pb.RangeRequest{Key: []byte("/a/"), RangeEnd: []byte("/a0")})
	mustEqualMessage(
		t,
		(&watchRequest{key: "/a", end: "/b", start: 300}).Append(nil),
		&pb.WatchRequest{},
		&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
			CreateRequest: &pb.WatchCreateRequest{
				Key:            []byte("/a"),
				RangeEnd:       []byte("/b"),
				StartRevision:  300,
				ProgressNotify: true,
			},
		}},
	)
	mustEqualMessage(t, progressRequest{}.Append(nil), &pb.WatchRequest{},
		&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

func mustMarshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

var (
	testHeader   = &pb.ResponseHeader{ClusterId: 1 << 63, MemberId: 2, Revision: 1 << 40, RaftTerm: 5}
	testKeyValue = &mvccpb.KeyValue{
		Key:            []byte("/a"),
		Value:          []byte("v"),
		CreateRevision: 1,
		ModRevision:    300,
		Version:        4,
		Lease:          9,
	}
	txnRefused = &pb.TxnResponse{
		Header: testHeader,
		Responses: []*pb.ResponseOp{
			{
				Response: &pb.ResponseOp_ResponseRange{
					ResponseRange: &pb.RangeResponse{Header: testHeader, Kvs: []*mvccpb.KeyValue{testKeyValue},
						Count: 1},
				},
			},
			{Response: &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{}}},
		},
	}
	txnDone = &pb.TxnResponse{
		Header:    testHeader,
		Succeeded: true,
		Responses: []*pb.ResponseOp{
			{Response: &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{Header: testHeader}}},
		},
	}
	lastPart = &pb.RangeStreamResponse{
		RangeResponse: &pb.RangeResponse{
			Header: testHeader,
			Kvs:    []*mvccpb.KeyValue{testKeyValue, {Key: []byte("/b"), ModRevision: 301}},
			More:   true,
			Count:  7,
		},
	}
	watchEvent = &pb.WatchResponse{
		Header:  testHeader,
		WatchId: 3,
		Events: []*mvccpb.Event{
			{Kv: testKeyValue},
			{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte("/b"), ModRevision: 301},
				PrevKv: testKeyValue},
		},
	}
	watchEnding = &pb.WatchResponse{
		Header:          testHeader,
		Canceled:        true,
		Created:         true,
		CompactRevision: 77,
		CancelReason:    "why",
	}
)

func TestRepliesDecodeLikeEtcdMessages(t *testing.T) {
	var refused, done txnReply
	if err := refused.Read(mustMarshal(t, txnRefused)); err != nil || refused.done || refused.revision != 1<<40 ||
		len(refused.ranges) != 2 ||
		refused.ranges[1].kv != nil {
		t.Fatalf("%+v, %v", refused, err)
	}
	if kv := refused.ranges[0].kv; kv.Key != "/a" || string(kv.Value) != "v" || kv.Revision != 300 {
		t.Errorf("%+v", kv)
	}
	if err := done.Read(mustMarshal(t, txnDone)); err != nil || !done.done || done.revision != 1<<40 {
		t.Errorf("%+v, %v", done, err)
	}
	var last streamPart
	if err := last.Read(mustMarshal(t, lastPart)); err != nil || last.revision != 1<<40 || len(last.kvs) != 2 ||
		last.kvs[1].Key != "/b" ||
		last.kvs[1].Revision != 301 {
		t.Fatalf("%+v, %v", last, err)
	}
	if kv := last.kvs[0]; kv.Key != "/a" || string(kv.Value) != "v" || kv.Revision != 300 {
		t.Errorf("%+v", kv)
	}
	var events, ending watchReply
	if err := events.Read(mustMarshal(t, watchEvent)); err != nil || events.created || events.canceled ||
		events.revision != 1<<40 {
		t.Errorf("%+v, %v", events, err)
	}
	if !slices.EqualFunc(
		events.events,
		[]store.Event{{Key: "/a", Value: []byte("v"), Revision: 300}, {Key: "/b", Revision: 301, Deleted: true}},
		func(a, b store.Event) bool {
			return a.Key == b.Key && string(a.Value) == string(b.Value) && a.Revision == b.Revision &&
				a.Deleted == b.Deleted
		},
	) {
		t.Errorf("%+v", events.events)
	}
	if err := ending.Read(mustMarshal(t, watchEnding)); err != nil || !ending.created || !ending.canceled ||
		ending.compacted != 77 ||
		ending.reason != "why" {
		t.Errorf("%+v, %v", ending, err)
	}
}

// FuzzReplies decodes arbitrary bytes as etcd's responses. The result must equal that of etcd's own messages, or be an
// error.
func FuzzReplies(f *testing.F) {
	for _, m := range []proto.Message{txnRefused, txnDone, lastPart, watchEvent, watchEnding} {
		f.Add(mustMarshal(f, m))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var own pb.TxnResponse
		var current txnReply
		if err := current.Read(data); err == nil && proto.Unmarshal(data, &own) == nil {
			if current.done != own.Succeeded || current.revision != own.Header.GetRevision() {
				t.Errorf("%+v is read as %+v", &own, current)
			}
		}
		var streamed pb.RangeStreamResponse
		var p streamPart
		if err := p.Read(data); err == nil && proto.Unmarshal(data, &streamed) == nil {
			if len(p.kvs) != len(streamed.RangeResponse.GetKvs()) ||
				p.revision != streamed.RangeResponse.GetHeader().GetRevision() {
				t.Errorf("%+v is read as %+v", &streamed, p)
			}
		}
		var watched pb.WatchResponse
		var w watchReply
		if err := w.Read(data); err == nil && proto.Unmarshal(data, &watched) == nil {
			if len(w.events) != len(watched.Events) || w.revision != watched.Header.GetRevision() ||
				w.compacted != watched.CompactRevision {
				t.Errorf("%+v is read as %+v", &watched, w)
			}
		}
	})
}
