package h2

import (
	"bufio"

	"golang.org/x/net/http2"
)

// bounded is the reader of frames. The framer reads a header block as one frame, however many CONTINUATION frames it
// consists of. bounded limits its total size, so that an endless block ends the connection.
type bounded struct {
	*bufio.Reader
	left int    // bytes that the current frame may still use
	came func() // called after each read
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	n, err := b.Reader.Read(p[:min(len(p), b.left)])
	b.left -= n
	b.came()
	return n, err
}

// mostRead returns the maximum size, in bytes, of one frame, or of a header block with its CONTINUATION frames.
func (c *Conn) mostRead() int { return 2*int(c.reader.MaxHeaderListSize) + ordinary }

// next reads a frame.
func (c *Conn) next() (http2.Frame, error) {
	c.input.left = c.mostRead()
	return c.reader.ReadFrame()
}
