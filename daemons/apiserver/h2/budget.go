package h2

import "golang.org/x/net/http2"

// URLs with long selectors are legitimate, so the headers of a request may have up to a MiB. Ordinary headers are small
// and are not counted. Large ones count from when they are read until their handler has ended. A connection may have
// only a few of them at a time.

const (
	// ordinary is the size of headers, in bytes, up to which they are not counted.
	ordinary = 64 << 10
	// mostLarge is the maximum total size, in bytes, of the counted headers of a connection.
	mostLarge = 4 << 20
)

// sizeOf returns the size of a request's headers as HTTP/2 counts it.
func sizeOf(f *http2.MetaHeadersFrame) int {
	n := 0
	for _, field := range f.Fields {
		n += int(field.Size())
	}
	return n
}

// afford counts the headers of a new stream. It returns false if the limit is exceeded. The caller holds c.mu.
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

// forgo stops counting the headers of a stream, whose handler has ended or never started. The caller holds c.mu.
func (c *Conn) forgo(st *stream) {
	c.large -= st.large
	st.large = 0
}
