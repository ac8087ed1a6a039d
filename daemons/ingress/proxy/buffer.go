package proxy

import (
	"sync"
	"time"
)

// buffer is memory for reading: b[r:w] was read and is not used yet.
type buffer struct {
	b    []byte
	r, w int
	pool *sync.Pool
}

const (
	clientBuffer   = 4 << 10
	upstreamBuffer = 16 << 10
	copyBuffer     = 64 << 10
)

var clientBuffers, upstreamBuffers, copyBuffers = new(sync.Pool), new(sync.Pool), new(sync.Pool)

func getBuffer(size int) *buffer {
	pool := copyBuffers
	switch size {
	case clientBuffer:
		pool = clientBuffers
	case upstreamBuffer:
		pool = upstreamBuffers
	}
	if b, ok := pool.Get().(*buffer); ok {
		return b
	}
	return &buffer{b: make([]byte, size), pool: pool}
}

// free returns the memory to its pool. A buffer that has grown is left to the garbage collector.
func (b *buffer) free() {
	b.r, b.w = 0, 0
	if b.pool != nil {
		b.pool.Put(b)
	}
}

func (b *buffer) bytes() []byte { return b.b[b.r:b.w] }

// makeRoom makes room for reading. It returns false if limit bytes are unused already.
func (b *buffer) makeRoom(limit int) bool {
	if b.r == b.w {
		b.r, b.w = 0, 0
	}
	if b.w < len(b.b) {
		return true
	}
	if b.r > 0 {
		b.w = copy(b.b, b.b[b.r:b.w])
		b.r = 0
		return true
	}
	if len(b.b) >= limit {
		return false
	}
	more := make([]byte, min(2*len(b.b), max(limit, len(b.b))))
	copy(more, b.b)
	old := *b
	b.b, b.pool = more, nil
	if old.pool != nil {
		old.pool.Put(&buffer{b: old.b, pool: old.pool})
	}
	return true
}

// deadline is a connection's read or write deadline by the engine's clock. It is only moved when it is too near,
// because setting it costs more than comparing.
type deadline struct{ at int64 }

// extend ensures that the deadline is between want and twice want away. It reports whether the new value must be set.
func (d *deadline) extend(now int64, want time.Duration) bool {
	if left := d.at - now; left >= int64(want) && left <= 2*int64(want) {
		return false
	}
	d.at = now + int64(want)*3/2
	return true
}

// set sets the deadline to a time. It reports whether the new value must be set.
func (d *deadline) set(at int64) bool {
	if d.at == at {
		return false
	}
	d.at = at
	return true
}
