package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clusterctl/certs"
	"clusterctl/provision/state"
)

// A list as JSON ends with a result, so that a truncated list differs from a short one.
// Proves P03.
func TestListsEndWithTheirResult(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv(state.PassphraseEnv, "")
	if err := os.WriteFile(filepath.Join(dir, "cluster.hcl"), []byte("cluster \"home\" {}\nmachine \"one\" {\n  "+
		"address = \"192.0.2.1\"\n  roles   = [\"control-plane\"]\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := state.DefaultKeyFile()
	if err != nil {
		t.Fatal(err)
	}
	s, err := state.New("home", func() (map[string]certs.Pair, error) { return map[string]certs.Pair{}, nil })
	if err != nil {
		t.Fatal(err)
	}
	store := state.Store{Dir: filepath.Join(dir, state.DirName), Sealer: state.Sealer{KeyFile: key}}
	if err := store.Write(s); err != nil {
		t.Fatal(err)
	}
	for n, last := range []string{"", "anna", "ben"} {
		if last != "" {
			if err := state.RecordKubeconfig(store.Dir,
				state.IssuedKubeconfig{Name: last, Serial: last, Until: time.Now().Add(time.Hour)}); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		root := newRoot()
		root.SetOut(&out)
		root.SetArgs([]string{"certs", "list", "--json", dir})
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		var r finalResult
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil || r.Kind != "result" ||
			r.Outcome != "done" ||
			r.Count == nil ||
			*r.Count != n ||
			len(lines) != n+1 {
			t.Errorf("%d were handed out: %v, %s", n, err, out.String())
		}
	}
}
