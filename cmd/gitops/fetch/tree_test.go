package fetch

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/memory"
)

// encoder is an object of Git.
type encoder interface {
	Encode(o plumbing.EncodedObject) error
}

func store(t *testing.T, s *memory.Storage, o encoder) plumbing.Hash {
	t.Helper()
	encoded := s.NewEncodedObject()
	if err := o.Encode(encoded); err != nil {
		t.Fatal(err)
	}
	hash, err := s.SetEncodedObject(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// A few small trees that contain each other many times have more folders than any memory can hold.
func TestTreesThatMultiplyAreBounded(t *testing.T) {
	for name, row := range map[string]struct {
		levels, entries int
		suffix          string
	}{
		"folders": {40, 1000, ""},
		"names":   {40, 2, strings.Repeat("n", 1<<20)},
	} {
		s := memory.NewStorage()
		hash := store(t, s, &object.Tree{})
		for range row.levels {
			level := &object.Tree{}
			for i := range row.entries {
				level.Entries = append(level.Entries,
					object.TreeEntry{Name: fmt.Sprintf("%04d", i) + row.suffix, Mode: filemode.Dir, Hash: hash})
			}
			hash = store(t, s, level)
		}
		files, err := openTree(s, store(t, s, &object.Commit{TreeHash: hash}))
		if err != nil {
			t.Fatal(err)
		}
		err = fs.WalkDir(files, ".", func(_ string, _ fs.DirEntry, err error) error { return err })
		if err == nil || !strings.Contains(err.Error(), "names") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
