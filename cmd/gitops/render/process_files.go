package render

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"clusterctl/daemons/gitops"
)

// Operations of a question.
const (
	askStat = "stat"
	askOpen = "open"
	askList = "list"
)

// question is what a process sends: a request for a file, or its answer, which is the last one.
type question struct {
	Op, Name string
	Answer   *answer
}

// reply is the reply to a request for a file.
type reply struct {
	Info      fileInfo
	Data      []byte // of a regular file
	Entries   []fileInfo
	Problem   string
	IsMissing bool // the problem is that the file does not exist
}

// fileServer replies to the questions of a process.
type fileServer struct {
	files      fs.FS
	in         *gob.Encoder
	out        *gob.Decoder
	unreadable error // the first error of a file whose reason matters, such as one that cannot be decrypted
}

// serve sends the task, and returns the answer.
func (s *fileServer) serve(t task) (answer, error) {
	if err := s.in.Encode(t); err != nil {
		return answer{}, err
	}
	for {
		var q question
		if err := s.out.Decode(&q); err != nil {
			return answer{}, err
		}
		if q.Answer != nil {
			return *q.Answer, nil
		}
		r, err := s.reply(q)
		if err != nil {
			var named *gitops.ReasonError
			if s.unreadable == nil && errors.As(err, &named) {
				s.unreadable = err
			}
			r = reply{Problem: err.Error(), IsMissing: errors.Is(err, fs.ErrNotExist)}
		}
		if err := s.in.Encode(r); err != nil {
			return answer{}, err
		}
	}
}

func (s *fileServer) reply(q question) (r reply, err error) {
	switch q.Op {
	case askStat:
		info, err := fs.Stat(s.files, q.Name)
		if err != nil {
			return r, err
		}
		r.Info = fileInfoOf(info)
		return r, nil
	case askList:
		entries, err := fs.ReadDir(s.files, q.Name)
		if err != nil {
			return r, err
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				return r, err
			}
			r.Entries = append(r.Entries, fileInfoOf(info))
		}
		return r, nil
	case askOpen:
		f, err := s.files.Open(q.Name)
		if err != nil {
			return r, err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return r, err
		}
		if r.Info = fileInfoOf(info); info.Mode().IsRegular() && info.Size() <= gitops.MaxFileBytes {
			r.Data, err = io.ReadAll(io.LimitReader(f, gitops.MaxFileBytes+1))
		}
		return r, err
	}
	return r, fmt.Errorf("unknown operation %q", q.Op)
}

// askedFiles are the files of a source in a process, which asks for each. They are not safe for concurrent use.
type askedFiles struct {
	in  *gob.Decoder
	out *gob.Encoder
}

var (
	_ fs.StatFS    = (*askedFiles)(nil)
	_ fs.ReadDirFS = (*askedFiles)(nil)
)

func (a *askedFiles) ask(op, name string) (r reply, err error) {
	if err := a.out.Encode(question{Op: op, Name: name}); err != nil {
		return r, fmt.Errorf("ask for %s: %w", name, err)
	}
	if err := a.in.Decode(&r); err != nil {
		return r, fmt.Errorf("ask for %s: %w", name, err)
	}
	if r.Problem != "" {
		return r, &askedError{r.Problem, r.IsMissing}
	}
	return r, nil
}

// askedError is an error of a file.
type askedError struct {
	text      string
	isMissing bool
}

func (e *askedError) Error() string { return e.text }

// Is lets errors.Is find fs.ErrNotExist.
func (e *askedError) Is(target error) bool { return e.isMissing && target == fs.ErrNotExist }

// Stat implements fs.StatFS.
func (a *askedFiles) Stat(name string) (fs.FileInfo, error) {
	r, err := a.ask(askStat, name)
	if err != nil {
		return nil, err
	}
	return r.Info, nil
}

// ReadDir implements fs.ReadDirFS.
func (a *askedFiles) ReadDir(name string) ([]fs.DirEntry, error) {
	r, err := a.ask(askList, name)
	entries := make([]fs.DirEntry, len(r.Entries))
	for i, e := range r.Entries {
		entries[i] = fs.FileInfoToDirEntry(e)
	}
	return entries, err
}

// Open implements fs.FS.
func (a *askedFiles) Open(name string) (fs.File, error) {
	r, err := a.ask(askOpen, name)
	if err != nil {
		return nil, err
	}
	return &askedFile{bytes.NewReader(r.Data), r.Info}, nil
}

// askedFile is an open file.
type askedFile struct {
	*bytes.Reader
	info fileInfo
}

// Stat implements fs.File.
func (f *askedFile) Stat() (fs.FileInfo, error) { return f.info, nil }

// Close implements fs.File.
func (*askedFile) Close() error { return nil }

// fileInfo is the information about a file that a process gets.
type fileInfo struct {
	Base     string
	Bytes    int64
	FileMode fs.FileMode
}

func fileInfoOf(info fs.FileInfo) fileInfo { return fileInfo{info.Name(), info.Size(), info.Mode()} }

// Name implements fs.FileInfo.
func (f fileInfo) Name() string { return f.Base }

// Size implements fs.FileInfo.
func (f fileInfo) Size() int64 { return f.Bytes }

// Mode implements fs.FileInfo.
func (f fileInfo) Mode() fs.FileMode { return f.FileMode }

// ModTime implements fs.FileInfo.
func (fileInfo) ModTime() time.Time { return time.Time{} }

// IsDir implements fs.FileInfo.
func (f fileInfo) IsDir() bool { return f.FileMode.IsDir() }

// Sys implements fs.FileInfo.
func (fileInfo) Sys() any { return nil }
