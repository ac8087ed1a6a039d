package cache

import (
	"bytes"
	"compress/flate"
	"io"
	"sync/atomic"
	"weak"
)

// parcel is the JSON of some entries that hardly anybody will ask for, compressed. It is opened for who does, and
// stays open while the garbage collector leaves it be.
type parcel struct {
	data []byte
	size int
	open atomic.Pointer[weak.Pointer[[]byte]]
}

// span is where something begins and ends.
type span struct{ from, to int32 }

// text is what is in the parcel. It must not be changed.
func (p *parcel) text() []byte {
	if w := p.open.Load(); w != nil {
		if text := w.Value(); text != nil {
			return *text
		}
	}
	text := make([]byte, p.size)
	// What we have written ourselves in memory can be read.
	_, _ = io.ReadFull(flate.NewReader(bytes.NewReader(p.data)), text)
	w := weak.Make(&text)
	p.open.Store(&w)
	return text
}

// wrapper makes parcels.
type wrapper struct {
	to bytes.Buffer
	z  *flate.Writer
}

// wrap makes a parcel of text; nil if it cannot.
func (w *wrapper) wrap(text []byte) *parcel {
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
	return &parcel{data: bytes.Clone(w.to.Bytes()), size: len(text)}
}
