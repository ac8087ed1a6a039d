package etcd

import (
	"google.golang.org/protobuf/encoding/protowire"

	"clusterctl/daemons/store"
)

// This file encodes the common requests to etcd in the format of its messages (etcdserverpb, mvccpb). Every object
// passes through here twice, and the generated types cost several times as much.

// txn is a TxnRequest.
type txn struct {
	store.Txn
	leases []int64 // one for each put; 0 for none
}

// These are field numbers.
const (
	txnCompare, txnSuccess, txnFailure                            = 1, 2, 3
	compareTarget, compareKey, compareModRevision                 = 2, 3, 6
	opRange, opPut, opDelete                                      = 1, 2, 3
	putKey, putValue, putLease                                    = 1, 2, 3
	rangeKey, rangeEnd, rangeCountOnly                            = 1, 2, 9
	deleteKey                                                     = 1
	replyHeader, headerCluster, headerRevision, headerTerm        = 1, 1, 3, 4
	txnSucceeded, txnResponses                                    = 2, 3
	rangeKvs, partRange                                           = 2, 1
	kvKey, kvModRevision, kvValue                                 = 1, 3, 5
	watchCreate, watchProgress                                    = 1, 3
	createKey, createEnd, createStart, createProgress             = 1, 2, 3, 4
	watchCreated, watchCanceled, watchCompact                     = 3, 4, 5
	watchReason, watchEvents                                      = 6, 11
	eventType, eventKv                                            = 1, 2
	targetMod, typeDelete                                  uint64 = 2, 1
)

// Append implements rpc.Request.
func (t *txn) Append(to []byte) []byte {
	for _, g := range t.Guards {
		to = appendHeader(to, txnCompare, 2+bytesSize(len(g.Key))+1+protowire.SizeVarint(uint64(g.Revision)))
		to = appendNumber(to, compareTarget, targetMod)
		to = appendText(to, compareKey, g.Key)
		// encoded even if it is 0, because it selects what is compared
		to = appendNumber(to, compareModRevision, uint64(g.Revision))
	}
	for i, p := range t.Puts {
		size := bytesSize(len(p.Key)) + bytesSize(len(p.Value)) + numberSize(t.leases[i])
		to = appendHeader(to, txnSuccess, bytesSize(size))
		to = appendHeader(to, opPut, size)
		to = appendText(to, putKey, p.Key)
		to = append(appendHeader(to, putValue, len(p.Value)), p.Value...)
		if t.leases[i] != 0 {
			to = appendNumber(to, putLease, uint64(t.leases[i]))
		}
	}
	for _, key := range t.Deletes {
		to = appendHeader(to, txnSuccess, bytesSize(bytesSize(len(key))))
		to = appendHeader(to, opDelete, bytesSize(len(key)))
		to = appendText(to, deleteKey, key)
	}
	for _, g := range t.Guards {
		to = appendHeader(to, txnFailure, bytesSize(bytesSize(len(g.Key))))
		to = appendHeader(to, opRange, bytesSize(len(g.Key)))
		to = appendText(to, rangeKey, g.Key)
	}
	return to
}

// bytesSize returns the size of a field with n bytes. The field number must be below 16.
func bytesSize(n int) int { return 1 + protowire.SizeBytes(n) }

// numberSize returns the size of a numeric field, which is left out if it is 0.
func numberSize(n int64) int {
	if n == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(uint64(n))
}

func appendHeader(to []byte, field protowire.Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(to, field, protowire.BytesType), uint64(size))
}

func appendText(to []byte, field protowire.Number, value string) []byte {
	return append(appendHeader(to, field, len(value)), value...)
}

func appendNumber(to []byte, field protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(to, field, protowire.VarintType), value)
}

// getRequest is a RangeRequest for one key. With countOnly the response has no value.
type getRequest struct {
	key       string
	countOnly bool
}

// Append implements rpc.Request.
func (g *getRequest) Append(to []byte) []byte {
	to = appendText(to, rangeKey, g.key)
	if g.countOnly {
		to = appendNumber(to, rangeCountOnly, 1)
	}
	return to
}

// rangeRequest is a RangeRequest for the keys from key up to end.
type rangeRequest struct{ key, end string }

// Append implements rpc.Request.
func (b *rangeRequest) Append(to []byte) []byte {
	return appendText(appendText(to, rangeKey, b.key), rangeEnd, b.end)
}

// watchRequest is a WatchRequest that creates a watch.
type watchRequest struct {
	key, end string
	start    int64
}

// Append implements rpc.Request.
func (c *watchRequest) Append(to []byte) []byte {
	to = appendHeader(to, watchCreate, bytesSize(len(c.key))+bytesSize(len(c.end))+numberSize(c.start)+numberSize(1))
	to = appendText(to, createKey, c.key)
	to = appendText(to, createEnd, c.end)
	to = appendNumber(to, createStart, uint64(c.start))
	return appendNumber(to, createProgress, 1)
}

// progressRequest is a WatchRequest for the progress of watches.
type progressRequest struct{}

// Append implements rpc.Request.
func (progressRequest) Append(to []byte) []byte { return appendHeader(to, watchProgress, 0) }
