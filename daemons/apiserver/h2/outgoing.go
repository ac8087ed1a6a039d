package h2

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// outgoing is the write buffer of a connection, guarded by the connection's lock. One goroutine at a time writes. If
// another goroutine adds data meanwhile, the writing goroutine sends it as well.
type outgoing struct {
	buf      []byte    // nil if empty; from rooms
	scratch  []byte    // buffer for header blocks
	deadline time.Time // write deadline; used only by the writing goroutine
	flushing bool
	idle     sync.Cond // signalled when flushing ends
	tail     uint32    // stream of the last DATA frame in buf, which can be extended; 0 if none
	head     int       // offset of that frame
	began    bool      // whether a header block has been sent

	answerable int // control frames that the client may send in answer, not yet added to the allowance

	window, initial int64 // flow-control windows: of the connection, and initially of each stream
	maxFrame        int
	blocked         []*stream // waiting for room in buf or in the connection's window
}

const (
	// eager is how many bytes are buffered before they are sent without a flush.
	eager = 32 << 10
	// mostPending is the maximum number of buffered bytes while another write is in progress.
	mostPending = 128 << 10
	// rounds is how many times a goroutine writes data that other goroutines have added.
	rounds = 4
	frame  = 9 // length of a frame header
)

// rooms is a pool of write buffers. Few of many connections write at the same time, so they share buffers.
var rooms = sync.Pool{New: func() any {
	room := make([]byte, 0, eager+eager/8)
	return &room
}}

// leaveRoom returns a written buffer to the pool.
func leaveRoom(buf []byte) {
	if cap(buf) <= 2*mostPending {
		buf = buf[:0]
		rooms.Put(&buf)
	}
}

func (o *outgoing) frame(kind http2.FrameType, flags http2.Flags, id uint32, length int) {
	if o.buf == nil {
		o.buf = *rooms.Get().(*[]byte)
	}
	o.tail = 0
	o.buf = append(o.buf, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	o.buf = binary.BigEndian.AppendUint32(o.buf, id)
}

func (o *outgoing) settings(list ...http2.Setting) {
	o.frame(http2.FrameSettings, 0, 0, 6*len(list))
	for _, s := range list {
		o.buf = binary.BigEndian.AppendUint16(o.buf, uint16(s.ID))
		o.buf = binary.BigEndian.AppendUint32(o.buf, s.Val)
	}
}

func (o *outgoing) settingsAck() { o.frame(http2.FrameSettings, http2.FlagSettingsAck, 0, 0) }

func (o *outgoing) ping(data [8]byte) {
	o.frame(http2.FramePing, http2.FlagPingAck, 0, 8)
	o.buf = append(o.buf, data[:]...)
}

func (o *outgoing) windowUpdate(id, more uint32) {
	o.frame(http2.FrameWindowUpdate, 0, id, 4)
	o.buf = binary.BigEndian.AppendUint32(o.buf, more)
}

func (o *outgoing) reset(id uint32, code http2.ErrCode) {
	o.frame(http2.FrameRSTStream, 0, id, 4)
	o.buf = binary.BigEndian.AppendUint32(o.buf, uint32(code))
}

func (o *outgoing) goAway(newest uint32, code http2.ErrCode) {
	o.frame(http2.FrameGoAway, 0, 0, 8)
	o.buf = binary.BigEndian.AppendUint32(o.buf, newest)
	o.buf = binary.BigEndian.AppendUint32(o.buf, uint32(code))
}

// headers appends a header block, in as many frames as it needs.
func (o *outgoing) headers(id uint32, block []byte, end bool) {
	if !o.began {
		// Set the size of the dynamic table to 0, whatever size the client allows.
		o.began = true
		block = append([]byte{0x20}, block...)
	}
	kind, flags := http2.FrameHeaders, http2.Flags(0)
	if end {
		flags = http2.FlagHeadersEndStream
	}
	for {
		n := min(len(block), o.maxFrame)
		if n == len(block) {
			flags |= http2.FlagHeadersEndHeaders
		}
		o.frame(kind, flags, id, n)
		o.buf = append(o.buf, block[:n]...)
		if block = block[n:]; len(block) == 0 {
			return
		}
		kind, flags = http2.FrameContinuation, 0
	}
}

// data appends data of a stream. end ends the stream.
func (o *outgoing) data(id uint32, p []byte, end bool) {
	o.answerable += controlPerWrite + controlPerKiB*(len(p)>>10)
	for {
		if o.tail != id || id == 0 {
			o.frame(http2.FrameData, 0, id, 0)
			o.tail, o.head = id, len(o.buf)-frame
		}
		head := o.buf[o.head:]
		have := len(head) - frame
		n := min(len(p), o.maxFrame-have)
		o.buf = append(o.buf, p[:n]...)
		head = o.buf[o.head:]
		length := have + n
		head[0], head[1], head[2] = byte(length>>16), byte(length>>8), byte(length)
		if p = p[n:]; len(p) == 0 {
			if end {
				head[4] |= byte(http2.FlagDataEndStream)
				o.tail = 0
			}
			return
		}
		o.tail = 0
	}
}

// Flush sends the connection's buffered data.
func (c *Conn) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushLocked()
	return c.failed
}

func (c *Conn) flushLocked() {
	if !c.out.flushing && len(c.out.buf) > 0 {
		c.out.flushing = true
		c.send()
	}
}

// flushTogether flushes the buffer after other handlers of this connection had a chance to add their responses.
// Requests often arrive together, so their responses can be sent together. The caller holds c.mu.
func (c *Conn) flushTogether() {
	if c.out.flushing || len(c.out.buf) == 0 {
		return
	}
	c.out.flushing = true
	if c.busy > 1 {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	c.send()
}

// flushAside flushes the buffer on another goroutine, because this one must not block. The caller holds c.mu.
func (c *Conn) flushAside() {
	c.out.flushing = true
	c.running.Go(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.send()
	})
}

// send writes until the buffer is empty. The caller holds c.mu; send releases it while writing.
func (c *Conn) send() {
	for round := 0; len(c.out.buf) > 0 && c.failed == nil; round++ {
		if round == rounds {
			c.flushAside() // others keep adding data, and this goroutine has its own work
			return
		}
		buf := c.out.buf
		c.out.buf, c.out.tail = nil, 0
		c.mu.Unlock()
		err := c.write(buf)
		leaveRoom(buf)
		c.mu.Lock()
		if err != nil && c.failed == nil {
			c.failed = err
			_ = c.nc.Close() // the reading goroutine ends all streams
		}
		c.unblock()
	}
	c.out.flushing = false
	if c.out.idle.Broadcast(); len(c.streams) == 0 {
		c.settle()
	}
	if c.failed != nil {
		c.unblock()
	}
}

func (c *Conn) write(buf []byte) error {
	// Setting a deadline costs as much as a small record, so one deadline covers many writes.
	if now := time.Now(); c.out.deadline.Sub(now) < stuck-stuck/4 {
		c.out.deadline = now.Add(stuck)
		if err := c.nc.SetWriteDeadline(c.out.deadline); err != nil {
			return err
		}
	}
	write := func() error {
		_, err := c.nc.Write(buf)
		return err
	}
	if c.gather == nil || len(buf) <= record {
		return write()
	}
	return c.gather.together(write)
}

// record is the maximum payload of a TLS record, in bytes.
const record = 16 << 10

// unblock wakes the streams that wait for room.
func (c *Conn) unblock() {
	waiting := c.out.blocked
	c.out.blocked = nil
	for _, st := range waiting {
		st.blocked = false
		st.look()
	}
}

// errOverflow reports that the client made a flow-control window too large.
var errOverflow = errors.New("a flow-control window has overflowed")

func widen(window *int64, by int64) error {
	if *window += by; *window > 1<<31-1 {
		return errOverflow
	}
	return nil
}

func (c *Conn) onWindowUpdate(f *http2.WindowUpdateFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID == 0 {
		if widen(&c.out.window, int64(f.Increment)) != nil {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		c.unblock()
		return nil
	}
	st := c.streams[f.StreamID]
	if st == nil {
		return c.closed(f.StreamID)
	}
	if widen(&st.window, int64(f.Increment)) != nil {
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl}
	}
	st.look()
	return nil
}

// closed returns an error for a frame on an idle stream. Frames on closed streams are allowed, since they may have been
// sent before the client knew. So are frames on streams that the client began after GOAWAY.
func (c *Conn) closed(id uint32) error {
	if id > c.newest && !c.going || id%2 == 0 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

func (c *Conn) onSettings(f *http2.SettingsFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.IsAck() {
		return nil
	}
	if f.NumSettings() > maxSettings {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	initial := c.out.initial
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case http2.SettingMaxFrameSize:
			c.out.maxFrame = min(int(s.Val), record)
		case http2.SettingInitialWindowSize:
			initial = int64(s.Val) // the last value counts; the streams are updated once per frame
		}
		return nil
	})
	if err != nil {
		return err
	}
	by := initial - c.out.initial
	c.out.initial = initial
	for _, st := range c.streams {
		if by == 0 {
			break
		}
		if widen(&st.window, by) != nil {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		st.look()
	}
	c.out.settingsAck()
	return nil
}
