package wire

import (
	"compress/gzip"
	"io"
	"net/http"
	"sync"

	"clusterctl/daemons/api/header"
)

// worthZipping is the size from which an answer is compressed for those who accept it.
const worthZipping = 128 << 10

var zippers = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // fails only for unknown levels
	return z
}}

// WriteDocument answers with what is encoded already and does not change with who asks.
func WriteDocument(w http.ResponseWriter, r *http.Request, data []byte) error {
	write := func(to io.Writer) error {
		_, err := to.Write(data)
		return err
	}
	if zips(len(data), header.Joined(r.Header, "Accept-Encoding")) {
		return zipped(w, write)
	}
	return write(w)
}

// zips says whether an answer of a size is compressed for a client that takes some codings.
func zips(size int, codings string) bool {
	return size > worthZipping && header.Accepts(codings, "gzip")
}

// zipped answers with what write writes, compressed.
func zipped(w http.ResponseWriter, write func(io.Writer) error) error {
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Add("Vary", "Accept-Encoding")
	z := zippers.Get().(*gzip.Writer)
	defer zippers.Put(z)
	z.Reset(w)
	if err := write(z); err != nil {
		w.Header().Del("Content-Encoding") // if nothing has been sent yet, what is wrong is
		return err
	}
	return z.Close()
}
