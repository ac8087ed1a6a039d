package step_test

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"clusterctl/certs"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/step"
)

// The law of steps: after Apply, Check finds nothing, whatever the state of the machine was before.
func TestAfterApplyCheckFindsNothing(t *testing.T) {
	ca, err := certs.NewCA("kubernetes", 0, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	request := certs.Daemon("kube-proxy")
	pair, err := certs.Issue(ca, request, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		h := &hostfake.Host{}
		paths := rapid.SampledFrom([]string{"/a", "/b", "/c"})
		mode := rapid.SampledFrom([]fs.FileMode{0o600, 0o644, 0o755})
		for range rapid.IntRange(0, 3).Draw(t, "before") {
			if err := h.WriteFile(paths.Draw(t, "path"), strings.NewReader(rapid.String().Draw(t, "content")),
				mode.Draw(t, "mode"), rapid.IntRange(0, 1).Draw(t, "uid"), 0); err != nil {
				t.Fatal(err)
			}
		}
		steps := []step.Step{
			&step.File{Path: "/a", Content: []byte(rapid.String().Draw(t, "new")), Mode: mode.Draw(t, "mode")},
			&step.Symlink{Path: "/b", Target: "/a"},
			&step.Absent{Path: "/c"},
			&step.Certificate{Path: "/d", CA: certs.ClusterCA, CACert: ca.Cert, Request: request, Pair: &pair},
			&step.Kubeconfig{
				Path:    "/e",
				Cluster: "home",
				Server:  "https://10.0.0.1:6443",
				CA:      certs.ClusterCA,
				CACert:  ca.Cert,
				Request: request,
				Pair:    &pair,
			},
			&step.Sysctl{Name: "net.ipv4.ip_forward", Value: "1"},
			&step.File{Path: step.UnitDir + "x.service", Content: []byte("[Service]")},
			&step.Unit{Name: "x.service", Files: []string{step.UnitDir + "x.service", "/a"}},
		}
		if err := step.Apply(t.Context(), h, steps, func(int, step.Change) {}); err != nil {
			t.Fatal(err)
		}
		changes, err := step.Check(t.Context(), h, steps)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range changes {
			if c.Action != "" {
				t.Errorf("%s still differs: %+v", steps[i].Label(), c)
			}
		}
	})
}

// If a run is interrupted between a change of a file and the restart of its unit, the next run restarts the unit.
func TestUnitsRestartForFilesChangedByAnEarlierRun(t *testing.T) {
	h := &hostfake.Host{}
	file := &step.File{Path: "/etc/x", Content: []byte("1")}
	unit := &step.Unit{Name: "x.service", Files: []string{step.UnitDir + "x.service", "/etc/x"}}
	steps := []step.Step{file, &step.File{Path: step.UnitDir + "x.service", Content: []byte("[Service]")}, unit}
	if err := step.Apply(t.Context(), h, steps, func(int, step.Change) {}); err != nil {
		t.Fatal(err)
	}
	if err := h.WriteFile("/etc/x", strings.NewReader("2"), 0o644, 0, 0); err != nil {
		t.Fatal(err)
	}
	file.Content = []byte("2")
	changes, err := step.Check(t.Context(), h, steps)
	if err != nil {
		t.Fatal(err)
	}
	if changes[0].Action != "" || changes[2].Action != step.Update || !strings.Contains(changes[2].Note, "restart") {
		t.Errorf("changes %+v", changes)
	}
}

// A unit that runs correctly, but is not enabled at boot, is enabled without a restart.
func TestUnitsAreEnabledWithoutARestart(t *testing.T) {
	h := &hostfake.Host{}
	steps := []step.Step{
		&step.File{Path: step.UnitDir + "x.service", Content: []byte("[Service]")},
		&step.Unit{Name: "x.service", Files: []string{step.UnitDir + "x.service"}},
	}
	if err := step.Apply(t.Context(), h, steps, func(int, step.Change) {}); err != nil {
		t.Fatal(err)
	}
	if err := h.Disable(t.Context(), "x.service"); err != nil {
		t.Fatal(err)
	}
	h.Log = nil
	var done []step.Change
	if err := step.Apply(t.Context(), h, steps, func(_ int, c step.Change) { done = append(done, c) }); err != nil {
		t.Fatal(err)
	}
	if len(done) != 1 || done[0].Note != "enable" || len(h.Log) > 0 {
		t.Errorf("changes %+v, did %v", done, h.Log)
	}
	if changes, err := step.Check(t.Context(), h, steps); err != nil || changes[1].Action != "" {
		t.Errorf("still differs: %+v, %v", changes, err)
	}
}

// Removing the removed lines from one text and the added lines from the other gives the same text.
func TestLinesShowExactlyTheDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		a, b := rapid.SliceOfN(line, 0, 12).Draw(t, "a"), rapid.SliceOfN(line, 0, 12).Draw(t, "b")
		diff := step.Lines(joinLines(a), joinLines(b))
		if len(diff) == 0 != slices.Equal(a, b) {
			t.Fatalf("%q and %q: %q", a, b, diff)
		}
		removed, added := 0, 0
		for _, d := range diff {
			if strings.HasPrefix(d, "- ") {
				removed++
			} else {
				added++
			}
		}
		if len(a)-removed != len(b)-added {
			t.Errorf("%q and %q: %q does not add up", a, b, diff)
		}
	})
}

func joinLines(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestDifferencesDoNotShowSecrets(t *testing.T) {
	h := &hostfake.Host{}
	if err := h.WriteFile("/k", strings.NewReader("old secret"), 0o600, 0, 0); err != nil {
		t.Fatal(err)
	}
	changes, err := step.Check(t.Context(), h,
		[]step.Step{&step.File{Path: "/k", Content: []byte("new secret"), Mode: 0o600, Secret: true}})
	if err != nil || strings.Contains(strings.Join(changes[0].Diff, ""), "secret") {
		t.Errorf("difference %q, %v", changes[0].Diff, err)
	}
}
