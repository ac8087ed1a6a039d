package load

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// FuzzLocks reads arbitrary lock files. Writing what was read gives the same content.
func FuzzLocks(f *testing.F) {
	f.Add([]byte("module \"git::https://a/b\" {\n  commit = \"0123456789012345678901234567890123456789\"\n  hash = " +
		"\"sha256:x\"\n}\n"))
	f.Add([]byte("module \"git::https://a/b\" {\n  commit = \"--orphan=x\"\n  hash = \"\"\n}\n"))
	f.Add([]byte("module \"a\" {\n commit = \"${x}\"\n hash = null\n}\nmodule \"a\" {\n}\n"))
	f.Add([]byte("module \"\\u001b${\" {\n commit = \"--upload-pack=x\"\n hash = \"$${\"\n}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "lock")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		locks, err := readLocks(path)
		if err != nil {
			return
		}
		for source, l := range locks {
			if l.commit == "" || l.commit[0] == '-' {
				t.Errorf("%s is locked to %q, which git takes for an option", source, l.commit)
			}
		}
		if err := writeLocks(path, locks); err != nil {
			t.Fatal(err)
		}
		if again, err := readLocks(path); err != nil || !maps.Equal(again, locks) {
			t.Errorf("%v was written, and %v is read: %v", locks, again, err)
		}
	})
}
