package framing

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// NewReader returns a reader of the server's frames. A frame is valid until the next one is read.
func NewReader(nc net.Conn) *http2.Framer {
	framer := http2.NewFramer(io.Discard, bufio.NewReaderSize(nc, 16<<10))
	framer.SetMaxReadFrameSize(16 << 10)
	framer.SetReuseFrames()
	return framer
}

// HeaderBlock collects and decodes the server's header blocks. It is used by the reading goroutine only.
type HeaderBlock struct {
	EndsStream bool // whether the stream ends with the block

	decoder   *hpack.Decoder
	maxSize   int
	fragments []byte
}

// NewHeaderBlock returns a HeaderBlock that passes each field of a decoded block to emit. maxSize is the maximum size
// in bytes of a block and of a field.
func NewHeaderBlock(maxSize int, emit func(hpack.HeaderField)) HeaderBlock {
	decoder := hpack.NewDecoder(4096, emit)
	decoder.SetMaxStringLength(maxSize)
	return HeaderBlock{decoder: decoder, maxSize: maxSize}
}

// Begin takes the first fragment of a block. It reports whether the block is complete.
func (b *HeaderBlock) Begin(f *http2.HeadersFrame) bool {
	b.fragments = append(b.fragments[:0], f.HeaderBlockFragment()...)
	b.EndsStream = f.StreamEnded()
	return f.HeadersEnded()
}

// Continue takes a further fragment of the block. It reports whether the block is complete.
func (b *HeaderBlock) Continue(f *http2.ContinuationFrame) (bool, error) {
	if b.fragments = append(b.fragments, f.HeaderBlockFragment()...); len(b.fragments) > b.maxSize {
		return false, errors.New("the server's headers are too large")
	}
	return f.HeadersEnded(), nil
}

// Decode decodes a complete block.
func (b *HeaderBlock) Decode() error {
	if _, err := b.decoder.Write(b.fragments); err != nil {
		return fmt.Errorf("read the server's headers: %w", err)
	}
	if err := b.decoder.Close(); err != nil {
		return fmt.Errorf("read the server's headers: %w", err)
	}
	return nil
}
