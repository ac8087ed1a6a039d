package main

import (
	"context"
	"io"
)

// until is a reader that ends when ctx does. A read from a terminal or a pipe would not notice that, and whoever
// interrupts a program that waits for input would wait as well.
func until(ctx context.Context, in io.Reader) io.Reader {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, in)
		_ = w.CloseWithError(err) // nil is the end of in
	}()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(io.EOF) })
	return r
}
