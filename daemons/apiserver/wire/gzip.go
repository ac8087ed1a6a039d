package wire

import (
	"compress/gzip"
	"io"
	"net/http"
	"sync"

	"clusterctl/daemons/api/header"
)

// minGzipSize is the size, in bytes, from which a response is compressed if the client accepts that.
const minGzipSize = 128 << 10

var gzipWriters = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // fails only for unknown levels
	return z
}}

// WriteDocument writes an encoded document as the response. The document is the same for all clients.
func WriteDocument(w http.ResponseWriter, r *http.Request, data []byte) error {
	write := func(to io.Writer) error {
		_, err := to.Write(data)
		return err
	}
	if shouldGzip(len(data), header.Joined(r.Header, "Accept-Encoding")) {
		return writeGzip(w, write)
	}
	return write(w)
}

// shouldGzip reports whether a response of a size is compressed for a client with that Accept-Encoding.
func shouldGzip(size int, codings string) bool {
	return size > minGzipSize && header.Accepts(codings, "gzip")
}

// writeGzip writes the output of write, compressed, as the response.
func writeGzip(w http.ResponseWriter, write func(io.Writer) error) error {
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Add("Vary", "Accept-Encoding")
	z := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(z)
	z.Reset(w)
	if err := write(z); err != nil {
		w.Header().Del("Content-Encoding") // if nothing was sent yet, the error response is not compressed
		return err
	}
	return z.Close()
}
