package h2

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// outgoing is what a connection has to say, guarded by the connection's lock. One goroutine at a
// time writes: who adds something while another is writing leaves it to that one.
type outgoing struct {
	buf      []byte    // nil: nothing; see room
	scratch  []byte    // for blocks of headers
	deadline time.Time // of writing; belongs to who writes
	flushing bool
	idle     sync.Cond // signalled when flushing ends
	tail     uint32    // stream of the data frame at the end of buf, which can be made longer; 0: none
	head     int       // where that begins
	began    bool      // whether a block of headers has been sent

	answerable int // control frames that what was sent may be answered with, since the allowance was last looked at

	window, initial int64 // what the client takes: of the connection, and of a new stream
	maxFrame        int
	blocked         []*stream // that wait for room in buf or the connection's window
}

const (
	// eager is how much is gathered before it is sent without being asked for.
	eager = 32 << 10
	// mostPending is how much waits while something is being written.
	mostPending = 128 << 10
	// rounds is how often a goroutine goes on writing what others have added.
	rounds = 4
	frame  = 9 // length of a frame's head
)

// rooms are buffers for what connections have to say. They are shared: connections are many, those that have something
// to say at one time are few, and what one needs for an answer or a burst of events another can use next.
var rooms = sync.Pool{New: func() any {
	room := make([]byte, 0, eager+eager/8)
	return &room
}}

// leaveRoom gives a buffer back whose content has been written.
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

// headers adds a block of headers, in as many frames as it needs.
func (o *outgoing) headers(id uint32, block []byte, end bool) {
	if !o.began {
		// No table is kept for compression, whatever size the client allows.
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

// data adds to what a stream says; end says that this is all.
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

// Flush sends what the connection's streams have to say.
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

// flushTogether sends what there is after others that are about to answer on this connection have added theirs:
// what they waited for often came in one piece, as what they say can go.
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

// flushAside sends what there is from another goroutine: this one has to go on even if writing waits.
func (c *Conn) flushAside() {
	c.out.flushing = true
	c.running.Go(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.send()
	})
}

// send writes until there is nothing more. The lock is held, and let go while writing.
func (c *Conn) send() {
	for round := 0; len(c.out.buf) > 0 && c.failed == nil; round++ {
		if round == rounds {
			c.flushAside() // others keep adding: this goroutine has its own work
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
			_ = c.nc.Close() // its reader ends everything on it
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
	// To set a deadline costs as much as a small record: one serves for many.
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

// record is what one TLS record carries.
const record = 16 << 10

// unblock lets the streams that wait for room look again.
func (c *Conn) unblock() {
	waiting := c.out.blocked
	c.out.blocked = nil
	for _, st := range waiting {
		st.blocked = false
		st.look()
	}
}

// errOverflow is the client's mistake: a window larger than can be.
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

// closed judges a frame for a stream that is not open: those that were may still get some, and those that
// were not begun after the goodbye.
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
			initial = int64(s.Val) // the last one counts: a frame costs one look at the streams
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
