package kubelet

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The manifest directory may be created after the kubelet has started, and may be replaced.
// Proves S23.
func TestTheManifestDirectoryIsWatchedOnceItExists(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	w := &manifestWatch{dir: dir}
	defer w.close()
	requireNotified := func(what string, do func() error) {
		t.Helper()
		if err := w.follow(); err != nil {
			t.Fatalf("before %s: %v", what, err)
		}
		for drained := false; !drained; {
			select {
			case <-w.watcher.Events:
			default:
				drained = true
			}
		}
		if err := do(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-w.watcher.Events:
		case err := <-w.watcher.Errors:
			t.Fatalf("%s: %v", what, err)
		case <-time.After(time.Minute):
			t.Fatalf("no change was reported of %s", what)
		}
	}
	write := func() error { return os.WriteFile(filepath.Join(dir, "etcd.yaml"), []byte("a"), 0o600) }
	requireNotified("the directory", func() error { return os.Mkdir(dir, 0o755) })
	requireNotified("a manifest", write)
	requireNotified("its going away", func() error { return os.Rename(dir, dir+".away") })
	requireNotified("another directory", func() error { return os.Mkdir(dir, 0o755) })
	requireNotified("a manifest in it", write)
}
