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
		to = open(to, txnCompare, 2+ofBytes(len(g.Key))+1+protowire.SizeVarint(uint64(g.Revision)))
		to = number(to, compareTarget, targetMod)
		to = text(to, compareKey, g.Key)
		// encoded even if it is 0, because it selects what is compared
		to = number(to, compareModRevision, uint64(g.Revision))
	}
	for i, p := range t.Puts {
		size := ofBytes(len(p.Key)) + ofBytes(len(p.Value)) + ofNumber(t.leases[i])
		to = open(to, txnSuccess, ofBytes(size))
		to = open(to, opPut, size)
		to = text(to, putKey, p.Key)
		to = append(open(to, putValue, len(p.Value)), p.Value...)
		if t.leases[i] != 0 {
			to = number(to, putLease, uint64(t.leases[i]))
		}
	}
	for _, key := range t.Deletes {
		to = open(to, txnSuccess, ofBytes(ofBytes(len(key))))
		to = open(to, opDelete, ofBytes(len(key)))
		to = text(to, deleteKey, key)
	}
	for _, g := range t.Guards {
		to = open(to, txnFailure, ofBytes(ofBytes(len(g.Key))))
		to = open(to, opRange, ofBytes(len(g.Key)))
		to = text(to, rangeKey, g.Key)
	}
	return to
}

// ofBytes returns the size of a field with n bytes. The field number must be below 16.
func ofBytes(n int) int { return 1 + protowire.SizeBytes(n) }

// ofNumber returns the size of a numeric field, which is left out if it is 0.
func ofNumber(n int64) int {
	if n == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(uint64(n))
}

func open(to []byte, field protowire.Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(to, field, protowire.BytesType), uint64(size))
}

func text(to []byte, field protowire.Number, value string) []byte {
	return append(open(to, field, len(value)), value...)
}

func number(to []byte, field protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(to, field, protowire.VarintType), value)
}

// get is a RangeRequest for one key. With countOnly the response has no value.
type get struct {
	key       string
	countOnly bool
}

// Append implements rpc.Request.
func (g *get) Append(to []byte) []byte {
	to = text(to, rangeKey, g.key)
	if g.countOnly {
		to = number(to, rangeCountOnly, 1)
	}
	return to
}

// below is a RangeRequest for the keys from key up to end.
type below struct{ key, end string }

// Append implements rpc.Request.
func (b *below) Append(to []byte) []byte { return text(text(to, rangeKey, b.key), rangeEnd, b.end) }

// create is a WatchRequest that creates a watch.
type create struct {
	key, end string
	start    int64
}

// Append implements rpc.Request.
func (c *create) Append(to []byte) []byte {
	to = open(to, watchCreate, ofBytes(len(c.key))+ofBytes(len(c.end))+ofNumber(c.start)+ofNumber(1))
	to = text(to, createKey, c.key)
	to = text(to, createEnd, c.end)
	to = number(to, createStart, uint64(c.start))
	return number(to, createProgress, 1)
}

// progress is a WatchRequest for the progress of watches.
type progress struct{}

// Append implements rpc.Request.
func (progress) Append(to []byte) []byte { return open(to, watchProgress, 0) }
