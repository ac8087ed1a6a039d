package etcd

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"clusterctl/daemons/store"
)

// eachField calls number and data for a message's numeric and bytes fields.
func eachField(message []byte, number func(protowire.Number, uint64), data func(protowire.Number, []byte) error) error {
	for len(message) > 0 {
		field, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return fmt.Errorf("read the tag of a field: %w", protowire.ParseError(size))
		}
		message = message[size:]
		var err error
		switch kind {
		case protowire.VarintType:
			var n uint64
			if n, size = protowire.ConsumeVarint(message); size >= 0 && number != nil {
				number(field, n)
			}
		case protowire.BytesType:
			var b []byte
			if b, size = protowire.ConsumeBytes(message); size >= 0 && data != nil {
				err = data(field, b)
			}
		default:
			size = protowire.ConsumeFieldValue(field, kind, message)
		}
		if size < 0 {
			err = protowire.ParseError(size)
		}
		if err != nil {
			return fmt.Errorf("read field %d: %w", field, err)
		}
		message = message[size:]
	}
	return nil
}

// readHeader decodes the revision of a ResponseHeader.
func readHeader(header []byte, revision *int64) error {
	return eachField(header, func(field protowire.Number, n uint64) {
		if field == headerRevision {
			*revision = int64(n)
		}
	}, nil)
}

// historyIdentity has the fields of a ResponseHeader that identify a history of the store: the cluster, and the term,
// which counts elections. Among linearizable reads, the term only decreases if the data was restored.
type historyIdentity struct{ cluster, term uint64 }

func (i *historyIdentity) read(header []byte) error {
	return eachField(header, func(field protowire.Number, n uint64) {
		switch field {
		case headerCluster:
			i.cluster = n
		case headerTerm:
			i.term = n
		}
	}, nil)
}

// keyValue is a KeyValue. It shares the message's bytes.
type keyValue struct {
	key, value []byte
	revision   int64
}

func (kv *keyValue) read(message []byte) error {
	return eachField(message, func(field protowire.Number, n uint64) {
		if field == kvModRevision {
			kv.revision = int64(n)
		}
	}, func(field protowire.Number, data []byte) error {
		switch field {
		case kvKey:
			kv.key = data
		case kvValue:
			kv.value = data
		}
		return nil
	})
}

// txnReply is a TxnResponse.
type txnReply struct {
	done     bool
	revision int64
	ranges   []rangeReply // by guard, if the transaction was not done
}

// Read implements rpc.Reply.
func (r *txnReply) Read(message []byte) error {
	return eachField(message, func(field protowire.Number, n uint64) {
		if field == txnSucceeded {
			r.done = n != 0
		}
	}, func(field protowire.Number, data []byte) error {
		switch field {
		case replyHeader:
			return readHeader(data, &r.revision)
		case txnResponses:
			return eachField(data, nil, r.response)
		}
		return nil
	})
}

// response decodes a ResponseOp.
func (r *txnReply) response(field protowire.Number, data []byte) error {
	if field != opRange {
		return nil
	}
	r.ranges = append(r.ranges, rangeReply{})
	return r.ranges[len(r.ranges)-1].Read(data)
}

// rangeReply is a RangeResponse for one key.
type rangeReply struct {
	revision      int64
	identity      historyIdentity // set only if wantsIdentity
	wantsIdentity bool
	kv            *store.KeyValue // nil if the key does not exist
}

// Read implements rpc.Reply.
func (r *rangeReply) Read(message []byte) error {
	return eachField(message, nil, func(field protowire.Number, data []byte) error {
		switch field {
		case replyHeader:
			if r.wantsIdentity {
				if err := r.identity.read(data); err != nil {
					return err
				}
			}
			return readHeader(data, &r.revision)
		case rangeKvs:
			var kv keyValue
			err := kv.read(data)
			r.kv = &store.KeyValue{Key: string(kv.key), Value: bytes.Clone(kv.value), Revision: kv.revision}
			return err
		}
		return nil
	})
}

// streamPart is one RangeStreamResponse of a stream. Each part has some of the keys. Only the last part of the stream
// has the revision, which is that of all parts.
type streamPart struct {
	revision int64
	kvs      []store.KeyValue
}

// Read implements rpc.Reply.
func (p *streamPart) Read(message []byte) error {
	return eachField(message, nil, func(field protowire.Number, data []byte) error {
		if field != partRange {
			return nil
		}
		return eachField(data, nil, func(field protowire.Number, data []byte) error {
			switch field {
			case replyHeader:
				return readHeader(data, &p.revision)
			case rangeKvs:
				var kv keyValue
				err := kv.read(data)
				p.kvs = append(p.kvs,
					store.KeyValue{Key: string(kv.key), Value: bytes.Clone(kv.value), Revision: kv.revision})
				return err
			}
			return nil
		})
	})
}

// watchReply is a WatchResponse. The values of its events share the message's bytes.
type watchReply struct {
	revision          int64
	created, canceled bool
	compacted         int64
	reason            string
	events            []store.Event
}

// Read implements rpc.Reply.
func (r *watchReply) Read(message []byte) error {
	return eachField(message, func(field protowire.Number, n uint64) {
		switch field {
		case watchCreated:
			r.created = n != 0
		case watchCanceled:
			r.canceled = n != 0
		case watchCompact:
			r.compacted = int64(n)
		}
	}, func(field protowire.Number, data []byte) error {
		switch field {
		case replyHeader:
			return readHeader(data, &r.revision)
		case watchReason:
			r.reason = string(data)
		case watchEvents:
			return r.event(data)
		}
		return nil
	})
}

// event decodes an Event.
func (r *watchReply) event(message []byte) error {
	var deleted bool
	var kv keyValue
	err := eachField(message, func(field protowire.Number, n uint64) {
		if field == eventType {
			deleted = n == typeDelete
		}
	}, func(field protowire.Number, data []byte) error {
		if field == eventKv {
			return kv.read(data)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if deleted {
		kv.value = nil
	}
	r.events = append(r.events,
		store.Event{Key: string(kv.key), Value: kv.value, Revision: kv.revision, Deleted: deleted})
	return nil
}
