package step_test

import (
	"context"
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
	for looks, want := range map[int]string{3: "restart, its files changed since it was started", 1 << 20: "start, it is activating"} {
		h := &restarting{&hostfake.Host{}, looks}
		unit := &step.Unit{Name: "x.service"}
		c, err := unit.Check(t.Context(), h, &step.Walk{})
		if err != nil || c.Note != want {
			t.Errorf("after %d looks: %+v, %v", looks, c, err)
		}
	}
}
