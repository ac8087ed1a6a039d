package framing

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// bufferConn is a connection that records what is written, or fails.
type bufferConn struct {
	net.Conn
	bytes.Buffer
	failure error
}

func (c *bufferConn) Read(p []byte) (int, error)       { return c.Buffer.Read(p) }
func (c *bufferConn) SetWriteDeadline(time.Time) error { return nil }
func (c *bufferConn) Write(p []byte) (int, error) {
	if c.failure != nil {
		return 0, c.failure
	}
	return c.Buffer.Write(p)
}

func encodeBlock(t *testing.T, fields ...hpack.HeaderField) []byte {
	t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range fields {
		if err := encoder.WriteField(f); err != nil {
			t.Fatal(err)
		}
	}
	return block.Bytes()
}

func TestLongHeadersAndDataAreSplitIntoFramesAndReadBack(t *testing.T) {
	var mu sync.Mutex
	nc := &bufferConn{}
	out := Output{Conn: nc, Lock: &mu, Timeout: time.Minute}
	value, body := strings.Repeat("v", 50), strings.Repeat("b", 40)
	mu.Lock()
	out.Headers(1, encodeBlock(t, hpack.HeaderField{Name: "n", Value: value}), 16, false)
	out.Data(1, []byte(body), 16, true)
	out.Data(3, nil, 16, true)
	err := out.Flush(true)
	mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	var fields []hpack.HeaderField
	block := NewHeaderBlock(1<<10, func(f hpack.HeaderField) { fields = append(fields, f) })
	read, ended, continued := "", map[uint32]bool{}, 0
	for frames := NewReader(nc); ; {
		f, err := frames.ReadFrame()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if f.Header().Length > 16 {
			t.Errorf("a frame has %d bytes", f.Header().Length)
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			if block.Begin(f) || block.EndsStream {
				t.Error("the first fragment is the whole request")
			}
		case *http2.ContinuationFrame:
			continued++
			complete, err := block.Continue(f)
			if err != nil {
				t.Fatal(err)
			}
			if complete {
				if err := block.Decode(); err != nil {
					t.Fatal(err)
				}
			}
		case *http2.DataFrame:
			read += string(f.Data())
			ended[f.StreamID] = ended[f.StreamID] || f.StreamEnded()
		}
	}
	if continued == 0 || len(fields) != 1 || fields[0].Value != value {
		t.Errorf("%d continuations, and the fields %v", continued, fields)
	}
	if read != body || !ended[1] || !ended[3] {
		t.Errorf("the data is %q, ended %v", read, ended)
	}
}

func TestNothingIsWrittenAfterClose(t *testing.T) {
	var mu sync.Mutex
	nc := &bufferConn{failure: errors.New("broken")}
	out := Output{Conn: nc, Lock: &mu, Timeout: time.Minute}
	mu.Lock()
	defer mu.Unlock()
	out.SettingsAck()
	if err := out.Flush(false); !errors.Is(err, nc.failure) {
		t.Fatalf("flush to a broken connection: %v", err)
	}
	out.Close()
	nc.failure = nil
	out.SettingsAck()
	if err := out.Flush(false); err != nil || nc.Len() > 0 {
		t.Fatalf("flush of a closed output: %v, %d bytes written", err, nc.Len())
	}
}

func TestAHeaderBlockHasAMaximumSize(t *testing.T) {
	var script bytes.Buffer
	framer := http2.NewFramer(&script, nil)
	part := encodeBlock(t, hpack.HeaderField{Name: "n", Value: strings.Repeat("v", 60)})
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: part}); err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteContinuation(1, true, part); err != nil {
		t.Fatal(err)
	}
	block := NewHeaderBlock(len(part), func(hpack.HeaderField) {})
	frames := NewReader(&bufferConn{Buffer: script})
	for {
		switch f, err := frames.ReadFrame(); f := f.(type) {
		case *http2.HeadersFrame:
			block.Begin(f)
		case *http2.ContinuationFrame:
			if _, err := block.Continue(f); err == nil {
				t.Fatal("a block of twice the maximum size is accepted")
			}
			return
		default:
			t.Fatal(err)
		}
	}
}
