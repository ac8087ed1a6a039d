package h2

import "golang.org/x/net/http2"

// URLs with long selectors are legitimate, so the headers of a request may have up to a MiB. Ordinary headers are small
// and are not counted. Large ones count from when they are read until their handler has ended. A connection may have
// only a few of them at a time.

const (
	// uncountedHeaders is the size of headers, in bytes, up to which they are not counted.
	uncountedHeaders = 64 << 10
	// maxCountedHeaders is the maximum total size, in bytes, of the counted headers of a connection.
	maxCountedHeaders = 4 << 20
)

// headerSize returns the size of a request's headers as HTTP/2 counts it.
func headerSize(f *http2.MetaHeadersFrame) int {
	n := 0
	for _, field := range f.Fields {
		n += int(field.Size())
	}
	return n
}

// countHeaders counts the headers of a new stream. It returns false if the limit is exceeded. The caller holds c.mu.
func (t *streamTable) countHeaders(st *stream, size int) bool {
	if size <= uncountedHeaders {
		return true
	}
	if t.countedHeaders+size > maxCountedHeaders {
		return false
	}
	st.countedHeaders = size
	t.countedHeaders += size
	return true
}

// uncountHeaders stops counting the headers of a stream, whose handler has ended or never started. The caller holds
// c.mu.
func (t *streamTable) uncountHeaders(st *stream) {
	t.countedHeaders -= st.countedHeaders
	st.countedHeaders = 0
}
