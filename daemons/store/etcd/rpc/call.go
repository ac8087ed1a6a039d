package rpc

import (
	"context"
	"encoding/binary"
	"net/url"
	"strconv"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// call is one that waits for its answer. It is guarded by its connection's lock while the connection has it.
type call struct {
	id     uint32
	data   []byte // what has come of the answer
	owed   int    // of it, not given back to the stream's window
	failed error
	outcome
	done chan struct{} // gets one when the answer is complete, or none will come
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
func (c *conn) invoke(ctx context.Context, method string, request Request, reply Reply) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	pooled := messages.Get().(*[]byte)
	message := framed(*pooled, request)
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
	err := made.result(reply)
	made.release()
	return err
}

// framed is a message with what stands before it, in a buffer.
func framed(buffer []byte, request Request) []byte {
	message := request.Append(append(buffer[:0], make([]byte, prefix)...))
	binary.BigEndian.PutUint32(message[1:], uint32(len(message)-prefix))
	return message
}

func (k *call) release() {
	if cap(k.data) > mostKept {
		k.data = nil
	}
	*k = call{data: k.data[:0], done: k.done}
	calls.Put(k)
}

// result reads the answer.
func (k *call) result(reply Reply) error {
	if k.failed != nil {
		return k.failed
	}
	if err := k.outcome.err(); err != nil {
		return err
	}
	if len(k.data) < prefix || k.data[0] != 0 || int(binary.BigEndian.Uint32(k.data[1:])) != len(k.data)-prefix {
		return status.Errorf(codes.Internal, "the answer's %d bytes are not one plain message", len(k.data))
	}
	if err := reply.Read(k.data[prefix:]); err != nil {
		return status.Errorf(codes.Internal, "decode the answer: %v", err)
	}
	return nil
}

// outcome is what the server says of a call at its end.
type outcome struct {
	code string // grpc-status; empty: not said yet
	text string // grpc-message
}

func (o outcome) err() error {
	switch o.code {
	case "0":
		return nil
	case "":
		return status.Error(codes.Unavailable, "the answer has no status: the server ends, or is none of gRPC")
	}
	code, err := strconv.ParseUint(o.code, 10, 32)
	if err != nil {
		return status.Errorf(codes.Unknown, "the answer's status is %q", o.code)
	}
	return status.Error(codes.Code(code), unescaped(o.text))
}

// unescaped is a status's message, whose special characters are sent as in a URL.
func unescaped(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}
