package lsp

import (
	"os"
	"path/filepath"

	"github.com/hashicorp/hcl/v2"

	"clusterctl/hcl/load"
)

// load loads the configuration of a file's directory, with the texts of the documents open in the editor.
func (s *server) load(path string) (*load.Configuration, hcl.Diagnostics) {
	return load.Load(load.Options{Path: filepath.Dir(path), Environ: os.Environ(), Texts: s.texts, IsModule: true})
}

// publishDiagnostics sends the diagnostics of a file's directory to the editor.
func (s *server) publishDiagnostics(path string) error {
	dir := filepath.Dir(path)
	c, diags := s.load(path)
	found := map[string][]diagnostic{path: {}}
	for file := range s.published[dir] {
		found[file] = []diagnostic{}
	}
	for i, d := range c.Report(diags).Diagnostics {
		file, at := path, textRange{}
		if r := diags[i].Subject; r != nil {
			file = r.Filename
			if f := c.Files[file]; f != nil {
				at = rangeOf(string(f.Bytes), r.Start.Byte, r.End.Byte)
			}
			if absolute, err := filepath.Abs(file); err == nil {
				file = absolute
			}
		}
		severity := 1
		if d.Severity == "warning" {
			severity = 2
		}
		text := d.Summary
		if d.Detail != "" {
			text += ": " + d.Detail
		}
		found[file] = append(found[file], diagnostic{at, severity, "clusterctl", text})
	}
	s.published[dir] = map[string]bool{}
	for file, list := range found {
		if len(list) > 0 {
			s.published[dir][file] = true
		}
		if err := s.notify("textDocument/publishDiagnostics", diagnosticsParams{uriOf(file), list}); err != nil {
			return err
		}
	}
	return nil
}
