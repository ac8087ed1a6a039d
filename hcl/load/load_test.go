package load_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"clusterctl/hcl/load"
)

var update = flag.Bool("update", false, "rewrite the wanted diagnostics and docs/language.md")

// Every file of testdata is a configuration with its diagnostics: the file "want" is their text, which is empty if
// there are none.
// Proves P01.
func TestDiagnosticsShowTheLineAndTheFix(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(script)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			want := -1
			options := load.Options{Path: dir}
			for i, f := range archive.Files {
				switch f.Name {
				case "want":
					want = i
					continue
				case "vars":
					options.Vars = strings.Fields(string(f.Data))
					continue
				case "environ":
					options.Environ = strings.Split(strings.TrimSpace(string(f.Data)), "\n")
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			configuration, diags := load.Load(options)
			var out strings.Builder
			if err := configuration.Print(&out, diags, 0, false); err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(out.String(), dir+"/", "")
			got = strings.ReplaceAll(got, dir, "DIR")
			if want < 0 {
				archive.Files = append(archive.Files, txtar.File{Name: "want"})
				want = len(archive.Files) - 1
			}
			if *update {
				archive.Files[want].Data = []byte(got)
				if err := os.WriteFile(script, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(archive.Files[want].Data) {
				t.Errorf("got:\n%s\nwant:\n%s", got, archive.Files[want].Data)
			}
		})
	}
}
