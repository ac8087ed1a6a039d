package dashboard

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"time"
)

// staticFiles serves files by their exact paths.
type staticFiles struct{ byPath map[string]staticFile }

type staticFile struct {
	text       []byte
	kind, etag string
}

// newStaticFiles reads all files of a file system that cannot fail, such as an embedded one.
func newStaticFiles(files fs.FS) *staticFiles {
	s := &staticFiles{map[string]staticFile{}}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		digest := sha256.Sum256(text)
		s.byPath["/"+name] = staticFile{text, contentType(name), `"` + hex.EncodeToString(digest[:12]) + `"`}
		return nil
	})
	if err != nil {
		panic(err) // the files are part of the program
	}
	return s
}

// contentType returns the type of a file. The machine's own table of types is not used, because it may be wrong.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "application/octet-stream"
}

// ServeHTTP implements http.Handler.
func (s *staticFiles) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.serve(w, r, r.URL.Path) }

// page returns a handler that serves one file under any path.
func (s *staticFiles) page(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, "/"+name) })
}

func (s *staticFiles) serve(w http.ResponseWriter, r *http.Request, name string) {
	file, ok := s.byPath[name]
	if !ok {
		writeError(w, errNotFound(name))
		return
	}
	w.Header().Set("Content-Type", file.kind)
	w.Header().Set("ETag", file.etag)
	w.Header().Set("Cache-Control", "no-cache") // the browser asks whether the file has changed
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file.text))
}
