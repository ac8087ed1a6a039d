package fetch

import (
	"io/fs"
	"sync"
)

// lazyFiles are files that are opened when they are first read. A source that was rendered at the same revision before
// is usually not read.
type lazyFiles struct{ open func() (*tree, error) }

var (
	_ fs.ReadDirFS = lazyFiles{}
	_ fs.StatFS    = lazyFiles{}
)

// newLazyFiles returns files that open opens, at most once.
func newLazyFiles(open func() (*tree, error)) lazyFiles { return lazyFiles{sync.OnceValues(open)} }

// Open implements fs.FS.
func (l lazyFiles) Open(name string) (fs.File, error) {
	t, err := l.open()
	if err != nil {
		return nil, err
	}
	return t.Open(name)
}

// ReadDir implements fs.ReadDirFS.
func (l lazyFiles) ReadDir(name string) ([]fs.DirEntry, error) {
	t, err := l.open()
	if err != nil {
		return nil, err
	}
	return t.ReadDir(name)
}

// Stat implements fs.StatFS.
func (l lazyFiles) Stat(name string) (fs.FileInfo, error) {
	t, err := l.open()
	if err != nil {
		return nil, err
	}
	return t.Stat(name)
}
