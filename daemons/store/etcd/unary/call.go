package unary

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// call is one that waits for its answer. It is guarded by its connection's lock while the connection has it.
type call struct {
	id     uint32
	data   []byte // what has come of the answer
	owed   int    // of it, not given back to the stream's window
	code   string // grpc-status; empty: not said yet
	text   string // grpc-message
	failed error
	done   chan struct{} // gets one when the answer is complete, or none will come
}

var calls = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

// prefix is what stands before a message: whether it is compressed, and its length.
const prefix = 5

const (
	// mostKept is how large a buffer is kept for the next call.
	mostKept = 64 << 10
	// mostAnswer is how large an answer may be.
	mostAnswer = 64 << 20
)

var messages = sync.Pool{New: func() any { return new([]byte) }}

// invoke makes a call and waits for its answer.
func (c *conn) invoke(ctx context.Context, method string, request, reply proto.Message) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	pooled := messages.Get().(*[]byte)
	message, err := proto.MarshalOptions{}.MarshalAppend(append((*pooled)[:0], make([]byte, prefix)...), request)
	if err != nil {
		return status.Errorf(codes.Internal, "encode the message of %s: %v", method, err)
	}
	binary.BigEndian.PutUint32(message[1:], uint32(len(message)-prefix))
	made := c.begin(ctx, method, message)
	if cap(message) <= mostKept {
		*pooled = message[:0]
		messages.Put(pooled)
	}
	if made == nil {
		return ErrElsewhere
	}
	select {
	case <-made.done:
	case <-ctx.Done():
		if c.abandon(made) {
			made.release()
			return status.FromContextError(ctx.Err()).Err()
		}
		<-made.done // it came at the same time
	}
	err = made.result(reply)
	made.release()
	return err
}

func (k *call) release() {
	if cap(k.data) > mostKept {
		k.data = nil
	}
	*k = call{data: k.data[:0], done: k.done}
	calls.Put(k)
}

// result reads the answer.
func (k *call) result(reply proto.Message) error {
	switch {
	case k.failed != nil:
		return k.failed
	case k.code == "":
		return status.Error(codes.Unavailable, "the answer has no status: the server ends, or is none of gRPC")
	case k.code != "0":
		code, err := strconv.ParseUint(k.code, 10, 32)
		if err != nil {
			return status.Errorf(codes.Unknown, "the answer's status is %q", k.code)
		}
		return status.Error(codes.Code(code), unescaped(k.text))
	case len(k.data) < prefix || k.data[0] != 0 || int(binary.BigEndian.Uint32(k.data[1:])) != len(k.data)-prefix:
		return status.Errorf(codes.Internal, "the answer's %d bytes are not one plain message", len(k.data))
	}
	if err := proto.Unmarshal(k.data[prefix:], reply); err != nil {
		return status.Errorf(codes.Internal, "decode the answer: %v", err)
	}
	return nil
}

// unescaped is a status's message, whose special characters are sent as in a URL.
func unescaped(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}

// timeout is how the protocol says how much time is left: at most eight digits and a unit.
func timeout(left time.Duration) string {
	left = max(left, 0)
	if ms := left.Milliseconds(); ms < 1e8 {
		return fmt.Sprintf("%dm", max(ms, 1))
	}
	return fmt.Sprintf("%dS", min(int64(left/time.Second), 99999999))
}
