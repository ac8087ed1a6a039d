package bundle_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"clusterctl/provision/bundle"
)

// A packed bundle is sent by users who can read the directory but cannot write to it, and their cache stays empty. A
// file that another build has packed is deleted.
func TestPackedBundlesAreNotCompressedAgain(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	for _, name := range []string{"clusterctl", "etcd", "runc"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("program "+name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	open := func() *bundle.Bundle {
		b, err := bundle.Open(filepath.Join(dir, "clusterctl"), cache)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if err := open().Pack(); err != nil {
		t.Fatal(err)
	}
	former, err := filepath.Glob(filepath.Join(dir, "packed", "*"))
	if err != nil || len(former) != 4 {
		t.Fatalf("packed are %q, %v", former, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "clusterctl"), []byte("another build"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := open()
	if err := b.Pack(); err != nil {
		t.Fatal(err)
	}
	if now, err := filepath.Glob(filepath.Join(dir, "packed", "*")); err != nil || len(now) != 4 {
		t.Errorf("packed are %q, then %q, %v", former, now, err)
	}
	f, err := b.File(bundle.Clusterctl)
	if err != nil {
		t.Fatal(err)
	}
	read := func(in io.Reader, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(in); err != nil || string(text) != "another build" {
			t.Errorf("it is %q, %v", text, err)
		}
	}
	z, err := b.Zstd(f)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = z.Close() }()
	plain, err := zstd.NewReader(z)
	read(plain, err)
	g, err := b.Gzip(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Close() }()
	unzipped, err := gzip.NewReader(g)
	read(unzipped, err)
	if made, err := filepath.Glob(filepath.Join(cache, "*.*z*")); err != nil || len(made) != 0 {
		t.Errorf("the cache has %q, %v", made, err)
	}
}
