package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"clusterctl/daemons/gitops"
)

// folder is the file system of a folder of the machine. It reads regular files only, and follows no symbolic links.
type folder struct{ root *os.Root }

var (
	_ fs.ReadDirFS = folder{}
	_ fs.StatFS    = folder{}
)

// readFolder returns a snapshot of a folder. Its revision is a digest of the names and the content of all files.
func readFolder(ctx context.Context, at string) (gitops.Snapshot, error) {
	root, err := os.OpenRoot(at)
	if err != nil {
		return gitops.Snapshot{}, err
	}
	f := folder{root}
	digest, err := f.digest(ctx)
	if err != nil {
		_ = root.Close()
		return gitops.Snapshot{}, err
	}
	return gitops.Snapshot{Revision: "folder@sha256:" + digest, Files: f, Release: func() { _ = root.Close() }}, nil
}

// digest returns a digest of all files.
func (f folder) digest(ctx context.Context) (string, error) {
	all := sha256.New()
	budget := gitops.NewBudget()
	err := fs.WalkDir(f, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if d.IsDir() && name != "." && d.Name() == ".git" {
			return fs.SkipDir
		}
		if !d.Type().IsRegular() {
			_, err := fmt.Fprintf(all, "%q %s\n", name, d.Type())
			return err
		}
		text, err := budget.ReadFile(f, name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		_, err = fmt.Fprintf(all, "%q %x\n", name, sum)
		return err
	})
	return hex.EncodeToString(all.Sum(nil)), err
}

// check returns the information on a file. None of the folders on the way to it may be a symbolic link.
func (f folder) check(op, name string) (fs.FileInfo, error) {
	fail := func(err error) (fs.FileInfo, error) { return nil, &fs.PathError{Op: op, Path: name, Err: err} }
	if !fs.ValidPath(name) {
		return fail(fs.ErrInvalid)
	}
	parts := strings.Split(name, "/")
	for i := 1; i < len(parts); i++ {
		info, err := f.root.Lstat(path.Join(parts[:i]...))
		switch {
		case err != nil:
			return fail(errorOf(err))
		case info.Mode()&fs.ModeSymlink != 0:
			return fail(errors.New("a symbolic link is not followed"))
		}
	}
	info, err := f.root.Lstat(name)
	if err != nil {
		return fail(errorOf(err))
	}
	return info, nil
}

// Stat implements fs.StatFS.
func (f folder) Stat(name string) (fs.FileInfo, error) { return f.check("stat", name) }

// ReadDir implements fs.ReadDirFS.
func (f folder) ReadDir(name string) ([]fs.DirEntry, error) {
	info, err := f.check("readdir", name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: errors.New("it is not a folder")}
	}
	return fs.ReadDir(f.root.FS(), name)
}

// Open implements fs.FS. A symbolic link or a special file can be opened, but has no content.
func (f folder) Open(name string) (fs.File, error) {
	info, err := f.check("open", name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() || info.Mode().IsRegular() {
		return f.root.Open(name)
	}
	return specialFile{info}, nil
}

// specialFile is a file that is not read.
type specialFile struct{ info fs.FileInfo }

// Stat implements fs.File.
func (f specialFile) Stat() (fs.FileInfo, error) { return f.info, nil }

// Read implements fs.File.
func (f specialFile) Read([]byte) (int, error) { return 0, io.EOF }

// Close implements fs.File.
func (f specialFile) Close() error { return nil }
