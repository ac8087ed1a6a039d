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
	id         uint32
	response   []byte // the response, as far as it has arrived
	unreturned int    // bytes not yet given back to the stream's window
	failed     error
	outcome
	done chan struct{} // receives one value when the response is complete or has failed
}

var callPool = sync.Pool{New: func() any { return &call{done: make(chan struct{}, 1)} }}

// prefixSize is the length of a message's prefix: the compression flag, and the message's length.
const prefixSize = 5

const (
	// maxPooledBuffer is the largest buffer, in bytes, that is kept for later calls.
	maxPooledBuffer = 64 << 10
	// maxResponse is the maximum size of a response, in bytes.
	maxResponse = 64 << 20
)

var messageBuffers = sync.Pool{New: func() any { return new([]byte) }}

// invoke makes a call and waits for its response.
func (c *conn) invoke(ctx context.Context, method string, request Request, reply Reply) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	pooled := messageBuffers.Get().(*[]byte)
	message := frameMessage(*pooled, request)
	made := c.begin(ctx, method, message)
	if cap(message) <= maxPooledBuffer {
		*pooled = message[:0]
		messageBuffers.Put(pooled)
	}
	if made == nil {
		return ErrNotMade
	}
	select {
	case <-made.done:
	case <-ctx.Done():
		if c.cancelCall(made) {
			made.release()
			return status.FromContextError(ctx.Err()).Err()
		}
		<-made.done // it was completed at the same time
	}
	err := made.result(reply)
	made.release()
	return err
}

// frameMessage returns a message with its prefix, in buffer if that is large enough.
func frameMessage(buffer []byte, request Request) []byte {
	message := request.Append(append(buffer[:0], make([]byte, prefixSize)...))
	binary.BigEndian.PutUint32(message[1:], uint32(len(message)-prefixSize))
	return message
}

func (k *call) release() {
	if cap(k.response) > maxPooledBuffer {
		k.response = nil
	}
	*k = call{response: k.response[:0], done: k.done}
	callPool.Put(k)
}

// result decodes the response.
func (k *call) result(reply Reply) error {
	if k.failed != nil {
		return k.failed
	}
	if err := k.outcome.err(); err != nil {
		return err
	}
	if len(k.response) < prefixSize || k.response[0] != 0 ||
		int(binary.BigEndian.Uint32(k.response[1:])) != len(k.response)-prefixSize {
		return status.Errorf(codes.Internal, "the answer's %d bytes are not one plain message", len(k.response))
	}
	if err := reply.Read(k.response[prefixSize:]); err != nil {
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
	return status.Error(codes.Code(code), unescapeMessage(o.text))
}

// unescapeMessage decodes a status message, in which special characters are percent-encoded.
func unescapeMessage(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}
