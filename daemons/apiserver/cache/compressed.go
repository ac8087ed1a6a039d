package cache

import (
	"bytes"
	"compress/flate"
	"io"
	"sync/atomic"
	"weak"
)

// compressedBlock is the compressed JSON of entries that are seldom read. A reader decompresses it; the text is kept as
// a weak reference.
type compressedBlock struct {
	data         []byte
	size         int
	decompressed atomic.Pointer[weak.Pointer[[]byte]]
}

// span is a range of offsets.
type span struct{ from, to int32 }

// text returns the decompressed JSON. It must not be changed.
func (p *compressedBlock) text() []byte {
	if w := p.decompressed.Load(); w != nil {
		if text := w.Value(); text != nil {
			return *text
		}
	}
	text := make([]byte, p.size)
	// Decompressing data that this process compressed cannot fail.
	_, _ = io.ReadFull(flate.NewReader(bytes.NewReader(p.data)), text)
	w := weak.Make(&text)
	p.decompressed.Store(&w)
	return text
}

// compressor creates parcels.
type compressor struct {
	to bytes.Buffer
	z  *flate.Writer
}

// compress returns a parcel of text; nil if that fails.
func (w *compressor) compress(text []byte) *compressedBlock {
	w.to.Reset()
	if w.z == nil {
		var err error
		if w.z, err = flate.NewWriter(&w.to, flate.BestSpeed); err != nil {
			return nil
		}
	} else {
		w.z.Reset(&w.to)
	}
	if _, err := w.z.Write(text); err != nil {
		return nil
	}
	if err := w.z.Close(); err != nil {
		return nil
	}
	return &compressedBlock{data: bytes.Clone(w.to.Bytes()), size: len(text)}
}
