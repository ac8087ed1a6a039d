package volume

import (
	"os"
	"path/filepath"
	"testing"
)

// bound is a Mounter that keeps what was bound where, by what it was when it was bound.
type bound struct {
	Plain
	from string
}

func (b *bound) Bind(from, _ string, _ []string) (err error) {
	b.from, err = os.Readlink(from)
	return err
}

// S26: a sub-path may be spelled in any way that stays in its volume.
func TestSpellingsOfSubPathsAreCarriedOut(t *testing.T) {
	for sub, want := range map[string]string{"logs/": "logs", "./x": "x", "a//b": "a/b", "..x": "..x", "x..": "x..", "a/./b": "a/b", "../x": "", "a/../../x": "", "a/..": "", "/x": ""} {
		dir, b := t.TempDir(), &bound{}
		m := &Manager{Root: dir, Mounter: b}
		base := filepath.Join(dir, "base")
		if err := os.Mkdir(base, 0o755); err != nil {
			t.Fatal(err)
		}
		err := m.subPath(base, sub, filepath.Join(dir, "target"))
		if want == "" {
			if err == nil {
				t.Errorf("%q was taken", sub)
			}
			continue
		}
		if err != nil || b.from != filepath.Join(base, want) {
			t.Errorf("%q is bound to %s, want %s: %v", sub, b.from, want, err)
		}
	}
}
