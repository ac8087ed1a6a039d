package h2

import (
	"bufio"

	"golang.org/x/net/http2"
)

// bounded is what frames are read from. A block of headers is read as one frame, however many CONTINUATION frames it
// comes in: what that takes from the wire is bounded here, so that a block without an end ends the connection.
type bounded struct {
	*bufio.Reader
	left int    // bytes that the frame that is being read may still take
	came func() // called when something has come
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

// mostRead is how much one frame may take, or a block of headers with all that continues it.
func (c *Conn) mostRead() int { return 2*int(c.reader.MaxHeaderListSize) + ordinary }

// next reads a frame.
func (c *Conn) next() (http2.Frame, error) {
	c.input.left = c.mostRead()
	return c.reader.ReadFrame()
}
