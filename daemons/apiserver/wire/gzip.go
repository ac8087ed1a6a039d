package wire

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"sync"
)

// worthZipping is the size from which an answer is compressed for those who accept it.
const worthZipping = 128 << 10

var zips = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // fails only for unknown levels
	return z
}}

// zips says whether an answer of a size is compressed.
func (m Media) zips(size int) bool {
	if size <= worthZipping {
		return false
	}
	for coding := range strings.SplitSeq(m.Codings, ",") {
		if name, _, _ := strings.Cut(strings.TrimSpace(coding), ";"); name == "gzip" {
			return true
		}
	}
	return false
}

// zipped answers with what write writes, compressed.
func zipped(w http.ResponseWriter, write func(io.Writer) error) error {
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Add("Vary", "Accept-Encoding")
	z := zips.Get().(*gzip.Writer)
	defer zips.Put(z)
	z.Reset(w)
	if err := write(z); err != nil {
		w.Header().Del("Content-Encoding") // if nothing has been sent yet, what is wrong is
		return err
	}
	return z.Close()
}
