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

// restarting is a machine on which systemd is about to start a unit again, a few looks long.
type restarting struct {
	host.Host
	looks int
}

func (r *restarting) Unit(context.Context, string) (host.Unit, error) {
	r.looks--
	state := "active"
	if r.looks >= 0 {
		state = "activating"
	}
	return host.Unit{Fragment: step.UnitDir + "x.service", Active: state, Enabled: true}, nil
}

func TestAUnitThatIsOnItsWayUpIsWaitedForAndNotPlanned(t *testing.T) {
	for looks, want := range map[int]string{3: "restart, its files changed since it was " +
		"started", 1 << 20: "start, it is activating"} {
		h := &restarting{&hostfake.Host{}, looks}
		unit := &step.Unit{Name: "x.service"}
		c, err := unit.Check(t.Context(), h, &step.Walk{})
		if err != nil || c.Note != want {
			t.Errorf("after %d looks: %+v, %v", looks, c, err)
		}
	}
}

// A unit that waits for what it cannot reach with the credentials that it began with is begun anew when it has
// others.
// Proves P05.
func TestAUnitThatIsStartingWithFormerFilesIsStartedAnew(t *testing.T) {
	for _, c := range []struct{ was, file, want string }{
		{"activating", "new", "restart x.service"},
		{"activating", "", "start x.service"}, // it is on its way with what there is
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
		h.Become("x.service", c.was)
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
			t.Errorf("%s, with %q: did %v, want %s", c.was, c.file, h.Log, c.want)
		}
	}
}
