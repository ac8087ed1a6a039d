package settings

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// S12: what a configuration file says holds as soon as it is looked at, and one that makes no
// sense changes nothing and is told.
func TestAFileThatChangesIsReadAgainAndAGoodOneStaysInForce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reads := 0
	read := func(text []byte) (string, error) {
		reads++
		if strings.HasPrefix(string(text), "bad") {
			return "", errors.New("it makes no sense")
		}
		return string(text), nil
	}
	if _, err := Open("thing", path, read, slog.New(slog.DiscardHandler)); err == nil || !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a file that is not there: %v", err)
	}
	write("bad")
	if _, err := Open("thing", path, read, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), path+": it makes no sense") {
		t.Fatal(err)
	}
	write("one")
	f, err := Open("thing", path, read, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	if err := f.Count("apiserver_thing", registry); err != nil {
		t.Fatal(err)
	}
	reads = 0
	for _, step := range []struct {
		name, text, holds, err string
		reads                  int
	}{
		{"the same", "one", "one", "", 0},
		{"another", "two", "two", "", 1},
		{"nonsense", "bad", "two", "no sense", 1},
		{"nonsense still", "bad", "two", "no sense", 0},
		{"more nonsense", "bad too", "two", "no sense", 1},
		{"what was there before", "two", "two", "", 1},
		{"gone", "", "two", "no such file", 0},
		{"there again, as it was", "two", "two", "", 1},
		{"empty is a text, too", " ", " ", "", 1},
	} {
		reads = 0
		if step.text == "" {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		} else {
			write(step.text)
		}
		err := f.Reload()
		if got := f.Get(); got != step.holds || reads != step.reads || (err == nil) != (step.err == "") || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("%s: %q holds after %d reads, %v; want %q after %d, %q", step.name, got, reads, err, step.holds, step.reads, step.err)
		}
	}
	want := `
# HELP apiserver_thing_automatic_reloads_total Changes of the file, by whether they could be used.
# TYPE apiserver_thing_automatic_reloads_total counter
apiserver_thing_automatic_reloads_total{status="failure"} 3
apiserver_thing_automatic_reloads_total{status="success"} 4
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "apiserver_thing_automatic_reloads_total"); err != nil {
		t.Error(err)
	}
}
