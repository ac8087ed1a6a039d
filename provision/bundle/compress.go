package bundle

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Zstd opens a file's content compressed with zstd, as agents take it.
func (b *Bundle) Zstd(f File) (io.ReadCloser, error) {
	return b.compressed(f, "zst", func(w io.Writer) (io.WriteCloser, error) {
		return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest))
	})
}

// Gzip opens a file's content compressed with gzip, which every machine can undo.
func (b *Bundle) Gzip(_ context.Context, f File) (io.ReadCloser, error) {
	return b.compressed(f, "gz", func(w io.Writer) (io.WriteCloser, error) {
		return gzip.NewWriterLevel(w, gzip.BestSpeed)
	})
}

// compressed makes a file's compressed form once, however many machines want it.
func (b *Bundle) compressed(f File, ext string, writer func(io.Writer) (io.WriteCloser, error)) (io.ReadCloser, error) {
	path := filepath.Join(b.cache, f.Digest+"."+ext)
	b.mu.Lock()
	lock, ok := b.making[path]
	if !ok {
		lock = &sync.Mutex{}
		b.making[path] = lock
	}
	b.mu.Unlock()
	lock.Lock()
	defer lock.Unlock()
	if done, err := os.Open(path); err == nil {
		return done, nil
	}
	in, err := os.Open(f.Path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	out, err := os.CreateTemp(b.cache, ".new-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(out.Name()) }()
	z, err := writer(out)
	if err == nil {
		_, err = io.Copy(z, in)
		if closeErr := z.Close(); err == nil {
			err = closeErr
		}
	}
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("compress %s: %w", f.Name, err)
	}
	if err := os.Rename(out.Name(), path); err != nil {
		return nil, err
	}
	return os.Open(path)
}
