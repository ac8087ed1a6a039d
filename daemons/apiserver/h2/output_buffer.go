package h2

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"clusterctl/daemons/run"
)

// outputBuffer is the write buffer of a connection, guarded by the connection's lock. One goroutine at a time writes.
// If another goroutine adds data meanwhile, the writing goroutine sends it as well.
type outputBuffer struct {
	pending    []byte    // nil if empty; from writeBuffers
	scratch    []byte    // buffer for header blocks
	deadline   time.Time // write deadline; used only by the writing goroutine
	flushing   bool
	flushed    sync.Cond // signalled when flushing ends
	lastStream uint32    // stream of the last DATA frame in buf, which can be extended; 0 if none
	lastOffset int       // offset of that frame
	hasBegun   bool      // whether a header block has been sent

	expectedReplies int // control frames that the client may send in answer, not yet added to the allowance

	window, initial int64 // flow-control windows: of the connection, and initially of each stream
	maxFrame        int
	blocked         []*stream // waiting for room in buf or in the connection's window
}

const (
	// flushThreshold is how many bytes are buffered before they are sent without a flush.
	flushThreshold = 32 << 10
	// maxPending is the maximum number of buffered bytes while another write is in progress.
	maxPending = 128 << 10
	// maxWriteRounds is how many times a goroutine writes data that other goroutines have added.
	maxWriteRounds  = 4
	frameHeaderSize = 9 // length of a frame header
)

// writeBuffers is a pool of write buffers. Few of many connections write at the same time, so they share buffers.
var writeBuffers = sync.Pool{New: func() any {
	room := make([]byte, 0, flushThreshold+flushThreshold/8)
	return &room
}}

// releaseBuffer returns a written buffer to the pool.
func releaseBuffer(buf []byte) {
	if cap(buf) <= 2*maxPending {
		buf = buf[:0]
		writeBuffers.Put(&buf)
	}
}

func (o *outputBuffer) frame(kind http2.FrameType, flags http2.Flags, id uint32, length int) {
	if o.pending == nil {
		o.pending = *writeBuffers.Get().(*[]byte)
	}
	o.lastStream = 0
	o.pending = append(o.pending, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags))
	o.pending = binary.BigEndian.AppendUint32(o.pending, id)
}

func (o *outputBuffer) settings(list ...http2.Setting) {
	o.frame(http2.FrameSettings, 0, 0, 6*len(list))
	for _, s := range list {
		o.pending = binary.BigEndian.AppendUint16(o.pending, uint16(s.ID))
		o.pending = binary.BigEndian.AppendUint32(o.pending, s.Val)
	}
}

func (o *outputBuffer) settingsAck() { o.frame(http2.FrameSettings, http2.FlagSettingsAck, 0, 0) }

func (o *outputBuffer) ping(data [8]byte) {
	o.frame(http2.FramePing, http2.FlagPingAck, 0, 8)
	o.pending = append(o.pending, data[:]...)
}

func (o *outputBuffer) windowUpdate(id, more uint32) {
	o.frame(http2.FrameWindowUpdate, 0, id, 4)
	o.pending = binary.BigEndian.AppendUint32(o.pending, more)
}

func (o *outputBuffer) reset(id uint32, code http2.ErrCode) {
	o.frame(http2.FrameRSTStream, 0, id, 4)
	o.pending = binary.BigEndian.AppendUint32(o.pending, uint32(code))
}

func (o *outputBuffer) goAway(newest uint32, code http2.ErrCode) {
	o.frame(http2.FrameGoAway, 0, 0, 8)
	o.pending = binary.BigEndian.AppendUint32(o.pending, newest)
	o.pending = binary.BigEndian.AppendUint32(o.pending, uint32(code))
}

// headers appends a header block, in as many frames as it needs.
func (o *outputBuffer) headers(id uint32, block []byte, end bool) {
	if !o.hasBegun {
		// Set the size of the dynamic table to 0, whatever size the client allows.
		o.hasBegun = true
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
		o.pending = append(o.pending, block[:n]...)
		if block = block[n:]; len(block) == 0 {
			return
		}
		kind, flags = http2.FrameContinuation, 0
	}
}

// data appends data of a stream. end ends the stream.
func (o *outputBuffer) data(id uint32, p []byte, end bool) {
	o.expectedReplies += controlPerWrite + controlPerKiB*(len(p)>>10)
	for {
		if o.lastStream != id || id == 0 {
			o.frame(http2.FrameData, 0, id, 0)
			o.lastStream, o.lastOffset = id, len(o.pending)-frameHeaderSize
		}
		head := o.pending[o.lastOffset:]
		current := len(head) - frameHeaderSize
		n := min(len(p), o.maxFrame-current)
		o.pending = append(o.pending, p[:n]...)
		head = o.pending[o.lastOffset:]
		length := current + n
		head[0], head[1], head[2] = byte(length>>16), byte(length>>8), byte(length)
		if p = p[n:]; len(p) == 0 {
			if end {
				head[4] |= byte(http2.FlagDataEndStream)
				o.lastStream = 0
			}
			return
		}
		o.lastStream = 0
	}
}

// Flush sends the connection's buffered data.
func (c *Conn) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushLocked()
	return c.end.failed
}

func (c *Conn) flushLocked() {
	if !c.output.flushing && len(c.output.pending) > 0 {
		c.output.flushing = true
		c.send()
	}
}

// flushTogether flushes the buffer after other handlers of this connection had a chance to add their responses.
// Requests often arrive together, so their responses can be sent together. The caller holds c.mu.
func (c *Conn) flushTogether() {
	if c.output.flushing || len(c.output.pending) == 0 {
		return
	}
	c.output.flushing = true
	if c.handlers.running > 1 {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	c.send()
}

// flushInBackground flushes the buffer on another goroutine, because this one must not block. The caller holds c.mu.
func (c *Conn) flushInBackground() {
	c.output.flushing = true
	c.handlers.all.Go(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.send()
	})
}

// send writes until the buffer is empty. The caller holds c.mu; send releases it while writing.
func (c *Conn) send() {
	for round := 0; len(c.output.pending) > 0 && c.end.failed == nil; round++ {
		if round == maxWriteRounds {
			c.flushInBackground() // other goroutines keep adding data; this one must not write for them all the time
			return
		}
		buf := c.output.pending
		c.output.pending, c.output.lastStream = nil, 0
		c.mu.Unlock()
		err := c.write(buf)
		releaseBuffer(buf)
		c.mu.Lock()
		if err != nil && c.end.failed == nil {
			c.end.failed = err
			_ = run.CloseWithin(c.nc, stuckTimeout) // the reading goroutine ends all streams
		}
		c.output.unblock()
	}
	c.output.flushing = false
	if c.output.flushed.Broadcast(); len(c.streams.open) == 0 {
		c.closeIfDone()
	}
	if c.end.failed != nil {
		c.output.unblock()
	}
}

func (c *Conn) write(buf []byte) error {
	// Setting a deadline costs as much as a small record, so one deadline covers many writes.
	if now := time.Now(); c.output.deadline.Sub(now) < stuckTimeout-stuckTimeout/4 {
		c.output.deadline = now.Add(stuckTimeout)
		if err := c.nc.SetWriteDeadline(c.output.deadline); err != nil {
			return err
		}
	}
	write := func() error {
		_, err := c.nc.Write(buf)
		return err
	}
	if c.gatherer == nil || len(buf) <= maxRecord {
		return write()
	}
	return c.gatherer.writeTogether(write)
}

// maxRecord is the maximum payload of a TLS record, in bytes.
const maxRecord = 16 << 10

// unblock wakes the streams that wait for room.
func (o *outputBuffer) unblock() {
	waiting := o.blocked
	o.blocked = nil
	for _, st := range waiting {
		st.blocked = false
		st.wake()
	}
}

// errOverflow reports that the client made a flow-control window too large.
var errOverflow = errors.New("a flow-control window has overflowed")

func widenWindow(window *int64, by int64) error {
	if *window += by; *window > 1<<31-1 {
		return errOverflow
	}
	return nil
}

func (c *Conn) onWindowUpdate(f *http2.WindowUpdateFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID == 0 {
		if widenWindow(&c.output.window, int64(f.Increment)) != nil {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		c.output.unblock()
		return nil
	}
	st := c.streams.open[f.StreamID]
	if st == nil {
		return c.checkNotIdle(f.StreamID)
	}
	if widenWindow(&st.window, int64(f.Increment)) != nil {
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeFlowControl}
	}
	st.wake()
	return nil
}

// checkNotIdle returns an error for a frame on an idle stream. Frames on closed streams are allowed, since they may
// have been sent before the client knew. So are frames on streams that the client began after GOAWAY.
func (c *Conn) checkNotIdle(id uint32) error {
	if id > c.streams.newest && !c.end.sentGoAway || id%2 == 0 {
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
	initial := c.output.initial
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case http2.SettingMaxFrameSize:
			c.output.maxFrame = min(int(s.Val), maxRecord)
		case http2.SettingInitialWindowSize:
			initial = int64(s.Val) // the last value counts; the streams are updated once per frame
		}
		return nil
	})
	if err != nil {
		return err
	}
	by := initial - c.output.initial
	c.output.initial = initial
	for _, st := range c.streams.open {
		if by == 0 {
			break
		}
		if widenWindow(&st.window, by) != nil {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		st.wake()
	}
	c.output.settingsAck()
	return nil
}
