package h2

import (
	"bufio"

	"golang.org/x/net/http2"
)

// boundedReader is the reader of frames. The framer reads a header block as one frame, however many CONTINUATION frames
// it consists of. bounded limits its total size, so that an endless block ends the connection.
type boundedReader struct {
	*bufio.Reader
	remaining int    // bytes that the current frame may still use
	onRead    func() // called after each read
}

// Read implements io.Reader.
func (b *boundedReader) Read(p []byte) (int, error) {
	if b.remaining <= 0 {
		return 0, http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	n, err := b.Reader.Read(p[:min(len(p), b.remaining)])
	b.remaining -= n
	b.onRead()
	return n, err
}

// frameReader reads the frames of a connection. It is used only by the reading goroutine.
type frameReader struct {
	input      *boundedReader
	framer     *http2.Framer
	maxHeaders uint32    // maximum size of a request's headers, once the client is identified
	control    allowance // of control frames
}

// maxFrameBytes returns the maximum size, in bytes, of one frame, or of a header block with its CONTINUATION frames.
func (r *frameReader) maxFrameBytes() int {
	return 2*int(r.framer.MaxHeaderListSize) + uncountedHeaders
}

// read reads a frame.
func (r *frameReader) read() (http2.Frame, error) {
	r.input.remaining = r.maxFrameBytes()
	return r.framer.ReadFrame()
}
