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

// call is a call that waits for its response. The connection's lock guards it while the connection refers to it.
type call struct {
	id     uint32
	data   []byte // the response, as far as it has arrived
	owed   int    // bytes not yet given back to the stream's window
	failed error
	outcome
	done chan struct{} // receives one value when the response is complete or has failed
}

var calls = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

// prefix is the length of a message's prefix: the compression flag, and the message's length.
const prefix = 5

const (
	// mostKept is the largest buffer, in bytes, that is kept for later calls.
	mostKept = 64 << 10
	// mostAnswer is the maximum size of a response, in bytes.
	mostAnswer = 64 << 20
)

var messages = sync.Pool{New: func() any { return new([]byte) }}

// invoke makes a call and waits for its response.
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
		<-made.done // it was completed at the same time
	}
	err := made.result(reply)
	made.release()
	return err
}

// framed returns a message with its prefix, in buffer if that is large enough.
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

// result decodes the response.
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

// outcome is the status that the server sends at the end of a call.
type outcome struct {
	code string // grpc-status; empty if it has not arrived
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

// unescaped decodes a status message, in which special characters are percent-encoded.
func unescaped(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}
