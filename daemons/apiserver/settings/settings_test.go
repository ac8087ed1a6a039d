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

// A changed configuration file takes effect when it is checked. An invalid one changes nothing and is reported.
// Proves S12.
func TestChangedFilesAreReloaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reads := 0
	read := func(text []byte, _ func(string) ([]byte, error)) (string, error) {
		reads++
		if strings.HasPrefix(string(text), "bad") {
			return "", errors.New("it makes no sense")
		}
		return string(text), nil
	}
	if _, err := Open("thing", path, read, slog.New(slog.DiscardHandler)); err == nil ||
		!errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a file that is not there: %v", err)
	}
	write("bad")
	if _, err := Open("thing", path, read, slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), path+": it makes no sense") {
		t.Fatal(err)
	}
	write("one")
	f, err := Open("thing", path, read, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	if err := f.RegisterMetrics("apiserver_thing", registry); err != nil {
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
		if got := f.Get(); got != step.holds || reads != step.reads || (err == nil) != (step.err == "") ||
			err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("%s: %q holds after %d reads, %v; want %q after %d, %q", step.name, got, reads, err, step.holds,
				step.reads, step.err)
		}
	}
	want := `
# HELP apiserver_thing_automatic_reloads_total Changes of the file, by whether they could be used.
# TYPE apiserver_thing_automatic_reloads_total counter
apiserver_thing_automatic_reloads_total{status="failure"} 3
apiserver_thing_automatic_reloads_total{status="success"} 4
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		"apiserver_thing_automatic_reloads_total"); err != nil {
		t.Error(err)
	}
}

// A change of another file that the text names counts as a change of the text.
// Proves S12.
func TestChangesOfNamedFilesAreReloads(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reads := 0
	read := func(text []byte, other func(string) ([]byte, error)) (string, error) {
		reads++
		more, err := other(filepath.Join(dir, string(text)))
		if err == nil && string(more) == "bad" {
			err = errors.New("it makes no sense")
		}
		return string(text) + "=" + string(more), err
	}
	write("a", "b")
	write("b", "1")
	f, err := Open("thing", filepath.Join(dir, "a"), read, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name, file, text, holds, err string
		reads                        int
	}{
		{"the same", "b", "1", "b=1", "", 0},
		{"the other changes", "b", "2", "b=2", "", 1},
		{"one that is not named", "c", "3", "b=2", "", 0},
		{"another is named", "a", "c", "c=3", "", 1},
		{"the former one changes", "b", "4", "c=3", "", 0},
		{"the other makes no sense", "c", "bad", "c=3", "no sense", 1},
		{"and still not", "c", "bad", "c=3", "no sense", 0},
		{"and does again", "c", "5", "c=5", "", 1},
		{"one that is not there is named", "a", "d", "c=5", "no such file", 1},
		{"it comes", "d", "6", "d=6", "", 1},
	} {
		reads = 0
		write(step.file, step.text)
		err := f.Reload()
		if got := f.Get(); got != step.holds || reads != step.reads || (err == nil) != (step.err == "") ||
			err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("%s: %q holds after %d reads, %v; want %q after %d, %q", step.name, got, reads, err, step.holds,
				step.reads, step.err)
		}
	}
}
