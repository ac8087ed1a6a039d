package step

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"clusterctl/provision/host"
)

// Reboot is that a machine has been booted since its system asked for that.
type Reboot struct{}

const (
	rebootRequired = "/run/reboot-required" // by the packages that ask for it; a boot clears it
	rebootPackages = "/run/reboot-required.pkgs"
)

// Label says so.
func (*Reboot) Label() string { return "reboot" }

// Check looks whether the system asks for it.
func (*Reboot) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	if _, err := h.Stat(rebootRequired); err != nil {
		return Change{}, nil
	}
	c := Change{Action: Update, Kind: Reboots, Name: "of the machine", Note: "its system asks for it"}
	if text, err := h.ReadFile(rebootPackages); err == nil {
		if packages := strings.Fields(string(text)); len(packages) > 0 {
			c.Note += ": " + strings.Join(packages[:min(len(packages), 5)], ", ")
		}
	}
	return c, nil
}

// goesDown is how long a system may take to end this process once it was told to reboot.
const goesDown = 3 * time.Minute

// Apply reboots. It does not return on a machine that does: whoever asked connects again.
func (*Reboot) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	was := host.Boot(h)
	if _, err := h.Run(ctx, "systemctl", "reboot"); err != nil {
		return fmt.Errorf("reboot: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, goesDown)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if host.Boot(h) != was { // a machine in memory, on which this process lives on
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New(
				"it was told to reboot, and is still up: see systemctl list-jobs there for what holds it up",
			)
		case <-tick.C:
		}
	}
}
