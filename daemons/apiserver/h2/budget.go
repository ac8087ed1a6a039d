package h2

import "golang.org/x/net/http2"

// Addresses with long selectors are legitimate, and so the headers of a request may have up to a MiB. Those of ordinary
// requests are small, and as many as there may be streams are kept without counting; what is large is counted, from
// when it is read until its handler has ended, and a connection may have a few of them at a time.

const (
	// ordinary is how large headers are that are not counted.
	ordinary = 64 << 10
	// mostLarge is how much the others may have together, on one connection.
	mostLarge = 4 << 20
)

// sizeOf is how much a request's headers take, as HTTP/2 counts.
func sizeOf(f *http2.MetaHeadersFrame) int {
	n := 0
	for _, field := range f.Fields {
		n += int(field.Size())
	}
	return n
}

// afford counts the headers of a stream that begins; false if there are too many that are large. The lock is held.
func (c *Conn) afford(st *stream, size int) bool {
	if size <= ordinary {
		return true
	}
	if c.large+size > mostLarge {
		return false
	}
	st.large = size
	c.large += size
	return true
}

// forgo counts the headers of a stream no more: its handler has ended, or there was none. The lock is held.
func (c *Conn) forgo(st *stream) {
	c.large -= st.large
	st.large = 0
}
