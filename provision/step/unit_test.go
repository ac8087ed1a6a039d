package step_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"clusterctl/provision/host"
	"clusterctl/provision/host/hostfake"
	"clusterctl/provision/step"
)

// restartingHost is a machine on which systemd is about to restart a unit, for a few reads of its state.
type restartingHost struct {
	host.Host
	reads int
}

func (r *restartingHost) Unit(context.Context, string) (host.Unit, error) {
	r.reads--
	state := "active"
	if r.reads >= 0 {
		state = "activating"
	}
	return host.Unit{Fragment: step.UnitDir + "x.service", Active: state, Enabled: true}, nil
}

func TestStartingUnitsAreWaitedForAndNotPlanned(t *testing.T) {
	for looks, want := range map[int]string{3: "restart, its files changed since it was " +
		"started", 1 << 20: "start, it is activating"} {
		h := &restartingHost{&hostfake.Host{}, looks}
		unit := &step.Unit{Name: "x.service"}
		c, err := unit.Check(t.Context(), h, &step.Walk{})
		if err != nil || c.Note != want {
			t.Errorf("after %d looks: %+v, %v", looks, c, err)
		}
	}
}

// A starting unit that waits with credentials which have changed since it started is restarted.
// Proves P05.
func TestUnitsStartingWithFormerFilesAreRestarted(t *testing.T) {
	for _, c := range []struct{ before, file, want string }{
		{"activating", "new", "restart x.service"},
		{"activating", "", "start x.service"}, // it starts with the present files
		{"deactivating", "new", "restart x.service"},
		{"failed", "new", "start x.service"},
		{"inactive", "", "start x.service"},
	} {
		h := &hostfake.Host{}
		unit := &step.Unit{Name: "x.service", Files: []string{"/etc/x.conf"}}
		if err := h.WriteFile("/etc/x.conf", strings.NewReader("old"), 0o600, 0, 0); err != nil {
			t.Fatal(err)
		}
		if err := unit.Apply(t.Context(), h, &step.Walk{}); err != nil {
			t.Fatal(err)
		}
		h.SetUnitState("x.service", c.before)
		if c.file != "" {
			if err := h.WriteFile("/etc/x.conf", strings.NewReader(c.file), 0o600, 0, 0); err != nil {
				t.Fatal(err)
			}
		}
		h.Log = nil
		if err := unit.Apply(t.Context(), h, &step.Walk{}); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(h.Log, c.want) {
			t.Errorf("%s, with %q: did %v, want %s", c.before, c.file, h.Log, c.want)
		}
	}
}
