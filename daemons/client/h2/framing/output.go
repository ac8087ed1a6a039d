// Package framing writes and reads the HTTP/2 frames of a client's connection (RFC 9113). Package h2 and the etcd
// client's package rpc implement their calls over it.
package framing

import (
	"encoding/binary"
	"net"
	"runtime"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// maxKeptBuffer is the maximum size in bytes of buffers that are reused.
const maxKeptBuffer = 64 << 10

// Output is the write buffer of a connection. All methods are called with the connection's lock. One goroutine at a
// time writes the buffer, together with the frames that other goroutines have added.
type Output struct {
	Conn    net.Conn
	Lock    *sync.Mutex   // the connection's lock, which guards all fields
	Timeout time.Duration // how long a write may block
	Buffer  []byte        // frames that are not written yet

	spare    []byte // the previous buffer, for reuse
	flushing bool
	closed   bool
	deadline time.Time // for writing; belongs to the flushing goroutine
}

// Header appends the header of a frame. The caller appends the payload to the buffer.
func (o *Output) Header(kind http2.FrameType, flags http2.Flags, id uint32, length int) {
	o.Buffer = append(o.Buffer, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	o.Buffer = binary.BigEndian.AppendUint32(o.Buffer, id)
}

// Preface appends the client's connection preface with its settings.
func (o *Output) Preface(settings ...http2.Setting) {
	const settingSize = 6
	o.Buffer = append(o.Buffer, http2.ClientPreface...)
	o.Header(http2.FrameSettings, 0, 0, settingSize*len(settings))
	for _, s := range settings {
		o.Buffer = binary.BigEndian.AppendUint16(o.Buffer, uint16(s.ID))
		o.Buffer = binary.BigEndian.AppendUint32(o.Buffer, s.Val)
	}
}

// SettingsAck appends the acknowledgement of the server's settings.
func (o *Output) SettingsAck() { o.Header(http2.FrameSettings, http2.FlagSettingsAck, 0, 0) }

// Ping appends a PING frame. flags is http2.FlagPingAck in the answer to a ping of the server.
func (o *Output) Ping(flags http2.Flags, data [8]byte) {
	o.Header(http2.FramePing, flags, 0, len(data))
	o.Buffer = append(o.Buffer, data[:]...)
}

// WindowUpdate appends a WINDOW_UPDATE frame. The ID of the connection is 0.
func (o *Output) WindowUpdate(id uint32, more int) {
	o.Header(http2.FrameWindowUpdate, 0, id, 4)
	o.Buffer = binary.BigEndian.AppendUint32(o.Buffer, uint32(more))
}

// Reset appends an RST_STREAM frame.
func (o *Output) Reset(id uint32, code http2.ErrCode) {
	o.Header(http2.FrameRSTStream, 0, id, 4)
	o.Buffer = binary.BigEndian.AppendUint32(o.Buffer, uint32(code))
}

// Headers appends a header block, in as many frames of up to maxFrame bytes as it needs. last ends the request.
func (o *Output) Headers(id uint32, block []byte, maxFrame int, last bool) {
	kind, flags := http2.FrameHeaders, http2.Flags(0)
	if last {
		flags = http2.FlagHeadersEndStream
	}
	for {
		n := min(len(block), maxFrame)
		if n == len(block) {
			flags |= http2.FlagHeadersEndHeaders
		}
		o.Header(kind, flags, id, n)
		o.Buffer = append(o.Buffer, block[:n]...)
		if block = block[n:]; len(block) == 0 {
			return
		}
		kind, flags = http2.FrameContinuation, 0
	}
}

// Data appends a part of a request's body, for which the windows have room, in frames of up to maxFrame bytes. last
// ends the request.
func (o *Output) Data(id uint32, part []byte, maxFrame int, last bool) {
	for {
		n := min(len(part), maxFrame)
		flags := http2.Flags(0)
		if last && n == len(part) {
			flags = http2.FlagDataEndStream
		}
		o.Header(http2.FrameData, flags, id, n)
		o.Buffer = append(o.Buffer, part[:n]...)
		if part = part[n:]; len(part) == 0 {
			return
		}
	}
}

// NeedsFlush reports whether there are frames that no goroutine is writing.
func (o *Output) NeedsFlush() bool { return len(o.Buffer) > 0 && !o.flushing }

// Close discards the buffer. Nothing is written any more.
func (o *Output) Close() { o.closed, o.Buffer = true, nil }

// Flush writes the buffer, unless another goroutine is doing so. That goroutine also writes what is added meanwhile.
// Flush releases the lock during writes. together first lets other goroutines add to the buffer. After an error the
// caller must close the output.
func (o *Output) Flush(together bool) error {
	if o.flushing || len(o.Buffer) == 0 || o.closed {
		return nil
	}
	o.flushing = true
	defer func() { o.flushing = false }()
	if together {
		o.Lock.Unlock()
		runtime.Gosched()
		o.Lock.Lock()
	}
	for len(o.Buffer) > 0 && !o.closed {
		buf := o.Buffer
		o.Buffer, o.spare = o.spare[:0], nil
		o.Lock.Unlock()
		err := o.write(buf)
		o.Lock.Lock()
		if cap(buf) <= maxKeptBuffer {
			o.spare = buf
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *Output) write(buf []byte) error {
	// Setting a deadline costs as much as writing a small record, so one deadline covers many writes.
	if now := time.Now(); o.deadline.Sub(now) < o.Timeout/2 {
		o.deadline = now.Add(o.Timeout)
		if err := o.Conn.SetWriteDeadline(o.deadline); err != nil {
			return err
		}
	}
	_, err := o.Conn.Write(buf)
	return err
}
