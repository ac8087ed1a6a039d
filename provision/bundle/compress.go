package bundle

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"
)

// Zstd opens a file's content compressed with zstd, as agents accept it.
func (b *Bundle) Zstd(f File) (io.ReadCloser, error) {
	return b.compressed(f, "zst", fastZstd)
}

// Gzip opens a file's content compressed with gzip, which every machine can decompress.
func (b *Bundle) Gzip(_ context.Context, f File) (io.ReadCloser, error) {
	return b.compressed(f, "gz", fastGzip)
}

func fastZstd(w io.Writer) (io.WriteCloser, error) {
	return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest))
}

func fastGzip(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriterLevel(w, gzip.BestSpeed) }

// compressed opens a file's compressed form. It compresses the file once, also for concurrent callers.
func (b *Bundle) compressed(f File, ext string, writer func(io.Writer) (io.WriteCloser, error)) (io.ReadCloser, error) {
	name := f.Digest + "." + ext
	if made, err := os.Open(filepath.Join(b.packedDir, name)); err == nil {
		return made, nil
	}
	path := filepath.Join(b.cacheDir, name)
	b.mu.Lock()
	lock, ok := b.compressLocks[path]
	if !ok {
		lock = &sync.Mutex{}
		b.compressLocks[path] = lock
	}
	b.mu.Unlock()
	lock.Lock()
	defer lock.Unlock()
	if done, err := os.Open(path); err == nil {
		return done, nil
	}
	if b.OnCompress != nil {
		b.OnCompress(f)
	}
	if err := compress(f, path, writer); err != nil {
		return nil, err
	}
	return os.Open(path)
}

// compress writes the compressed form of a file atomically.
func compress(f File, path string, writer func(io.Writer) (io.WriteCloser, error)) error {
	in, err := os.Open(f.Path)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
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
		return fmt.Errorf("compress %s: %w", f.Name, err)
	}
	return os.Rename(out.Name(), path)
}

// Pack stores the compressed forms of the programs in the directory packed beside them, so that the first apply does
// not compress them. It deletes those of other builds. Users need no write access to the directory, because machines
// verify the digests.
func (b *Bundle) Pack() error {
	if err := os.MkdirAll(b.packedDir, 0o755); err != nil {
		return err
	}
	wanted := map[string]bool{b.files[Clusterctl].Digest + ".gz": true}
	pack := func(f File, ext string, writer func(io.Writer) (io.WriteCloser, error)) error {
		path := filepath.Join(b.packedDir, f.Digest+"."+ext)
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		if err := compress(f, path, writer); err != nil {
			return err
		}
		return os.Chmod(path, 0o644)
	}
	g := errgroup.Group{}
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, f := range b.files {
		wanted[f.Digest+".zst"] = true
		g.Go(func() error { return pack(f, "zst", fastZstd) })
	}
	g.Go(func() error { return pack(b.files[Clusterctl], "gz", fastGzip) })
	if err := g.Wait(); err != nil {
		return err
	}
	entries, err := os.ReadDir(b.packedDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !wanted[e.Name()] {
			if err := os.Remove(filepath.Join(b.packedDir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
