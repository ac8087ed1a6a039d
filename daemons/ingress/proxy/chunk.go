package proxy

import "bytes"

var (
	errChunk    = &statusError{400, "a chunk is malformed"}
	errTrailer  = &statusError{400, "a trailer field is malformed or may not be one"}
	errTrailers = &statusError{431, "the trailer fields are too large"}
)

const (
	maxChunkLine = 256
	maxTrailers  = 8 << 10
)

// chunks parses a chunked body incrementally.
type chunks struct {
	state     chunkState
	remaining int64 // bytes left of the chunk
	total     int64 // bytes of data so far
	lineBytes int   // bytes of the line
	trailer   []byte
}

type chunkState uint8

const (
	chunkSize chunkState = iota // hex digits
	chunkExtension
	chunkSizeEnd // LF of the size line
	chunkData
	chunkDataCR
	chunkDataLF
	chunkTrailer
	chunkDone
)

func (c *chunks) reset() { *c = chunks{trailer: c.trailer[:0]} }

func (c *chunks) isDone() bool { return c.state == chunkDone }

// parse parses the start of b. n is the number of parsed bytes, and data is the body data among them. It parses nothing
// after the body.
func (c *chunks) parse(b []byte) (n int, data []byte, err *statusError) {
	for n < len(b) {
		ch := b[n]
		switch c.state {
		case chunkSize:
			n++
			switch {
			case isHex(ch):
				if c.lineBytes++; c.lineBytes > 15 {
					return n, nil, errChunk
				}
				c.remaining = c.remaining<<4 | int64(unhex(ch))
				continue
			case c.lineBytes == 0:
				return n, nil, errChunk
			case ch == '\r':
				c.state = chunkSizeEnd
			case ch == ';':
				c.state, c.lineBytes = chunkExtension, 0
			default:
				return n, nil, errChunk
			}
		case chunkExtension:
			n++
			switch {
			case ch == '\r':
				c.state = chunkSizeEnd
			case !valueBytes[ch]:
				return n, nil, errChunk
			default:
				if c.lineBytes++; c.lineBytes > maxChunkLine {
					return n, nil, errChunk
				}
			}
		case chunkSizeEnd:
			n++
			if ch != '\n' {
				return n, nil, errChunk
			}
			c.lineBytes = 0
			if c.state = chunkData; c.remaining == 0 {
				c.state = chunkTrailer
			}
		case chunkData:
			size := int(min(int64(len(b)-n), c.remaining))
			if c.remaining -= int64(size); c.remaining == 0 {
				c.state = chunkDataCR
			}
			c.total += int64(size)
			return n + size, b[n : n+size], nil
		case chunkDataCR, chunkDataLF:
			n++
			want, then := byte('\r'), chunkDataLF
			if c.state == chunkDataLF {
				want, then = '\n', chunkSize
			}
			if ch != want {
				return n, nil, errChunk
			}
			c.state = then
		case chunkTrailer:
			end := bytes.IndexByte(b[n:], '\n')
			if end < 0 {
				end = len(b) - n - 1
			}
			if len(c.trailer)+end+1 > maxTrailers {
				return n, nil, errTrailers
			}
			c.trailer = append(c.trailer, b[n:n+end+1]...)
			n += end + 1
			if err := c.checkTrailerLine(); err != nil {
				return n, nil, err
			}
		case chunkDone:
			return n, nil, nil
		}
	}
	return n, nil, nil
}

// checkTrailerLine validates the last line of the trailer if it is complete.
func (c *chunks) checkTrailerLine() *statusError {
	t := c.trailer
	if t[len(t)-1] != '\n' {
		return nil
	}
	at := bytes.LastIndexByte(t[:len(t)-1], '\n') + 1
	if string(t[at:]) == "\r\n" {
		c.state = chunkDone
		return nil
	}
	text, _, err := nextLine(t, at)
	if err != nil {
		return errTrailer
	}
	n := 0
	for n < len(text) && tokenBytes[text[n]] {
		n++
	}
	// A trailer must not contain fields that belong in the head.
	if n == 0 || n == len(text) || text[n] != ':' || kindOf(text[:n]) != kindOther {
		return errTrailer
	}
	for _, ch := range text[n+1:] {
		if !valueBytes[ch] {
			return errTrailer
		}
	}
	return nil
}

// consume parses as much of b as belongs to the body, and returns its length.
func (c *chunks) consume(b []byte) (int, *statusError) {
	at := 0
	for at < len(b) && !c.isDone() {
		n, _, err := c.parse(b[at:])
		if at += n; err != nil {
			return at, err
		}
	}
	return at, nil
}
