package rpc

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// scriptedConn is a connection from which the client reads the given bytes, and nothing more.
type scriptedConn struct {
	net.Conn
	input *bytes.Reader
}

func (s scriptedConn) Read(p []byte) (int, error)       { return s.input.Read(p) }
func (s scriptedConn) Write(p []byte) (int, error)      { return len(p), nil }
func (s scriptedConn) Close() error                     { return nil }
func (s scriptedConn) SetWriteDeadline(time.Time) error { return nil }

type discardMessage struct{}

func (discardMessage) Read([]byte) error       { return nil }
func (discardMessage) Append(to []byte) []byte { return to }

// FuzzServer sends arbitrary bytes as the server. Every call must return a response or an error.
func FuzzServer(f *testing.F) {
	var good bytes.Buffer
	framer := http2.NewFramer(&good, nil)
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	_ = framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 10})
	_ = enc.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	_ = framer.WriteData(1, false, []byte("\x00\x00\x00\x00\x03\x0a\x01x"))
	_ = framer.WriteData(3, false, []byte("\x00\x00\x00\x00\x03\x0a\x01x\x00\x00\x00\x00\x04ab"))
	_ = framer.WriteData(3, true, []byte("cd"))
	block.Reset()
	_ = enc.WriteField(hpack.HeaderField{Name: "grpc-status", Value: "0"})
	_ = framer.WriteHeaders(
		http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true},
	)
	f.Add(good.Bytes())
	good.Reset()
	_ = framer.WriteGoAway(1, http2.ErrCodeNo, nil)
	_ = framer.WritePing(false, [8]byte{1})
	_ = framer.WriteRSTStream(1, http2.ErrCodeRefusedStream)
	_ = framer.WriteWindowUpdate(0, 1<<30)
	f.Add(good.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		c := newConn(scriptedConn{input: bytes.NewReader(data)}, "http", "x", nil)
		message := append(make([]byte, prefixSize), "abc"...)
		k := c.begin(context.Background(), "/a/b", message)
		if k == nil {
			t.Fatal("no call was made")
		}
		s := c.stream("/a/c", []Header{{"a", "b"}}, discardMessage{}, len(data)%2 == 0)
		if s == nil {
			t.Fatal("no stream was begun")
		}
		c.readFrames()
		select {
		case <-k.done:
		default:
			t.Fatal("a call has got neither an answer nor an error")
		}
		_ = k.result(discardMessage{})
		messages := 0
		err := s.Receive(context.Background(), func([]byte, bool) error { messages++; return nil })
		if err == nil || messages > len(data) {
			t.Fatalf("a stream ended with %v after %d messages", err, messages)
		}
	})
}
