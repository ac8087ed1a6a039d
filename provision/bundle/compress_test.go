package bundle_test

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"clusterctl/provision/bundle"
)

// Compressing a program takes seconds. It is reported with its size before it begins, once for each program and form,
// and not for programs that are already compressed.
func TestCompressionIsReportedBeforeItBegins(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	for _, name := range []string{"clusterctl", "etcd", "runc"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("program "+name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	read := func() (reported []string) {
		t.Helper()
		b, err := bundle.Open(filepath.Join(dir, "clusterctl"), cache)
		if err != nil {
			t.Fatal(err)
		}
		b.OnCompress = func(f bundle.File) {
			made, err := filepath.Glob(filepath.Join(cache, f.Digest+".*"))
			if err != nil || f.Size != int64(len("program "+f.Name)) || f.Name == "etcd" && len(made) > 0 {
				t.Errorf("%s of %d bytes is reported when the cache has %q, %v", f.Name, f.Size, made, err)
			}
			reported = append(reported, f.Name)
		}
		etcd, err := b.File("etcd")
		if err != nil {
			t.Fatal(err)
		}
		var wait sync.WaitGroup
		for range 3 {
			wait.Go(func() {
				if z, err := b.Zstd(etcd); err != nil || z.Close() != nil {
					t.Errorf("compress etcd: %v", err)
				}
			})
		}
		wait.Wait()
		own, err := b.File(bundle.Clusterctl)
		if err != nil {
			t.Fatal(err)
		}
		if z, err := b.Gzip(t.Context(), own); err != nil || z.Close() != nil {
			t.Errorf("compress clusterctl: %v", err)
		}
		return reported
	}
	if got := read(); !slices.Equal(got, []string{"etcd", "clusterctl"}) {
		t.Errorf("reported are %q", got)
	}
	if got := read(); len(got) > 0 {
		t.Errorf("compressed programs are reported again: %q", got)
	}
}
