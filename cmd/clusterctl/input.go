package main

import (
	"context"
	"io"
)

// readerUntil returns a reader that ends when ctx does. A read from a terminal or a pipe would not notice an interrupt.
func readerUntil(ctx context.Context, in io.Reader) io.Reader {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, in)
		_ = w.CloseWithError(err) // a nil error means the end of in
	}()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(io.EOF) })
	return r
}
