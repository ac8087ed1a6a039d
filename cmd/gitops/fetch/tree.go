package fetch

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// Bounds of a tree.
const (
	maxTreeEntries = 100_000 // in one folder
	maxTreeDepth   = 64      // folders in folders
	// maxTreeBytes is about the memory of all folders that were read. A folder may contain another one many times.
	maxTreeBytes = 64 << 20
	entryBytes   = 96 // about the memory of an entry besides its name
)

// tree is the file system of a commit. It reads objects when they are needed. It is safe for concurrent use.
type tree struct {
	objects storer.EncodedObjectStorer

	mu      sync.Mutex         // guards the fields below
	folders map[string][]entry // by path
	bytes   int                // memory of folders
}

var (
	_ fs.ReadDirFS = (*tree)(nil)
	_ fs.StatFS    = (*tree)(nil)
)

// openTree returns the files of a commit.
func openTree(objects storer.EncodedObjectStorer, commit plumbing.Hash) (*tree, error) {
	c, err := object.GetCommit(objects, commit)
	if err != nil {
		return nil, fmt.Errorf("read the commit: %w", err)
	}
	t := &tree{objects: objects, folders: map[string][]entry{}}
	root, err := t.load(c.TreeHash, ".")
	if err != nil {
		return nil, err
	}
	return t, t.add(".", root)
}

// add records a folder that was read.
func (t *tree) add(at string, list []entry) error {
	size := entryBytes + len(at)
	for _, e := range list {
		size += entryBytes + len(e.name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bytes += size; t.bytes > maxTreeBytes {
		return fmt.Errorf("the names of the folders that are read have more than %d bytes", maxTreeBytes)
	}
	t.folders[at] = list
	return nil
}

// entry is a file or a folder. It is its own fs.FileInfo.
type entry struct {
	name string
	mode fs.FileMode
	hash plumbing.Hash
	size int64
}

func (e entry) Name() string       { return e.name }
func (e entry) Size() int64        { return e.size }
func (e entry) Mode() fs.FileMode  { return e.mode }
func (e entry) ModTime() time.Time { return time.Time{} } // Git has none
func (e entry) IsDir() bool        { return e.mode.IsDir() }
func (e entry) Sys() any           { return nil }
func (e entry) Type() fs.FileMode  { return e.mode.Type() }

// load reads a folder. Names that lead elsewhere are refused, since a tree can contain any bytes.
func (t *tree) load(hash plumbing.Hash, at string) ([]entry, error) {
	if strings.Count(at, "/") >= maxTreeDepth {
		return nil, fmt.Errorf("%s: folders are nested deeper than %d", at, maxTreeDepth)
	}
	read, err := object.GetTree(t.objects, hash)
	if err != nil {
		return nil, fmt.Errorf("read the folder %s: %w", at, err)
	}
	if len(read.Entries) > maxTreeEntries {
		return nil, fmt.Errorf("the folder %s has more than %d entries", at, maxTreeEntries)
	}
	list := make([]entry, 0, len(read.Entries))
	for _, e := range read.Entries {
		if e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\\\x00") {
			return nil, fmt.Errorf("the folder %s has an entry with the name %q, which is no name of a "+
				"file", at, e.Name)
		}
		one := entry{name: e.Name, hash: e.Hash}
		switch e.Mode {
		case filemode.Dir:
			one.mode = fs.ModeDir | 0o755
		case filemode.Symlink:
			one.mode = fs.ModeSymlink | 0o777
		case filemode.Submodule:
			one.mode = fs.ModeIrregular
		case filemode.Executable:
			one.mode = 0o755
		default:
			one.mode = 0o644
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	for i := 1; i < len(list); i++ {
		if list[i].name == list[i-1].name {
			return nil, fmt.Errorf("the folder %s has two entries with the name %q", at, list[i].name)
		}
	}
	return list, nil
}

// find returns the entry at a path.
func (t *tree) find(op, name string) (entry, error) {
	fail := func(err error) (entry, error) { return entry{}, &fs.PathError{Op: op, Path: name, Err: err} }
	if !fs.ValidPath(name) {
		return fail(fs.ErrInvalid)
	}
	if name == "." {
		return entry{name: ".", mode: fs.ModeDir | 0o755}, nil
	}
	list, err := t.folder(path.Dir(name))
	if err != nil {
		return fail(err)
	}
	i, ok := slices.BinarySearchFunc(list, path.Base(name), func(e entry, name string) int {
		return strings.Compare(e.name, name)
	})
	if !ok {
		return fail(fs.ErrNotExist)
	}
	e := list[i]
	if e.mode.IsRegular() || e.mode&fs.ModeSymlink != 0 {
		if e.size, err = t.objects.EncodedObjectSize(e.hash); err != nil {
			return fail(err)
		}
	}
	return e, nil
}

// folder returns the entries of a folder.
func (t *tree) folder(name string) ([]entry, error) {
	t.mu.Lock()
	list, ok := t.folders[name]
	t.mu.Unlock()
	if ok {
		return list, nil
	}
	e, err := t.find("open", name)
	if err != nil {
		return nil, errorOf(err)
	}
	switch {
	case e.mode&fs.ModeSymlink != 0:
		return nil, errors.New("a symbolic link is not followed")
	case e.mode&fs.ModeIrregular != 0:
		return nil, errors.New("a submodule is not fetched")
	case !e.IsDir():
		return nil, fs.ErrNotExist
	}
	if list, err = t.load(e.hash, name); err != nil {
		return nil, err
	}
	return list, t.add(name, list)
}

// errorOf returns the error without the path of a parent.
func errorOf(err error) error {
	var inner *fs.PathError
	if errors.As(err, &inner) {
		return inner.Err
	}
	return err
}

// Stat implements fs.StatFS.
func (t *tree) Stat(name string) (fs.FileInfo, error) {
	e, err := t.find("stat", name)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// ReadDir implements fs.ReadDirFS.
func (t *tree) ReadDir(name string) ([]fs.DirEntry, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrInvalid}
	}
	list, err := t.folder(name)
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: err}
	}
	entries := make([]fs.DirEntry, len(list))
	for i, e := range list {
		entries[i] = listedEntry{e, t, path.Join(name, e.name)}
	}
	return entries, nil
}

// listedEntry is an entry of a folder whose size is read when it is needed.
type listedEntry struct {
	entry
	tree *tree
	path string
}

// Info implements fs.DirEntry.
func (l listedEntry) Info() (fs.FileInfo, error) { return l.tree.Stat(l.path) }

// Open implements fs.FS. The content of a symbolic link is its target; nothing follows it.
func (t *tree) Open(name string) (fs.File, error) {
	e, err := t.find("open", name)
	if err != nil {
		return nil, err
	}
	if e.IsDir() {
		list, err := t.ReadDir(name)
		return &openFolder{e, list}, err
	}
	if e.mode&fs.ModeIrregular != 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("a submodule is not fetched")}
	}
	blob, err := object.GetBlob(t.objects, e.hash)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	r, err := blob.Reader()
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &openFile{e, r}, nil
}

// openFile is an open file.
type openFile struct {
	entry
	io.ReadCloser
}

// Stat implements fs.File.
func (f *openFile) Stat() (fs.FileInfo, error) { return f.entry, nil }

// openFolder is an open folder.
type openFolder struct {
	entry
	left []fs.DirEntry
}

// Stat implements fs.File.
func (f *openFolder) Stat() (fs.FileInfo, error) { return f.entry, nil }

// Close implements fs.File.
func (f *openFolder) Close() error { return nil }

// Read implements fs.File.
func (f *openFolder) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: f.name, Err: errors.New("it is a folder")}
}

// ReadDir implements fs.ReadDirFile.
func (f *openFolder) ReadDir(n int) ([]fs.DirEntry, error) {
	if n > 0 && len(f.left) == 0 {
		return nil, io.EOF
	}
	if n <= 0 || n > len(f.left) {
		n = len(f.left)
	}
	list := f.left[:n]
	f.left = f.left[n:]
	return list, nil
}
