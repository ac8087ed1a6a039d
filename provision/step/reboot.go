package step

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"clusterctl/provision/host"
)

// Reboot reboots a machine if its operating system requests it.
type Reboot struct{}

const (
	rebootRequired = "/run/reboot-required" // created by packages that request a reboot; removed by booting
	rebootPackages = "/run/reboot-required.pkgs"
)

// Label returns a fixed text.
func (*Reboot) Label() string { return "reboot" }

// Check checks whether a reboot is requested.
func (*Reboot) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	if _, err := h.Stat(rebootRequired); err != nil {
		return Change{}, nil
	}
	c := Change{Action: Update, Kind: KindReboot, Name: "of the machine", Note: "its system asks for it"}
	if text, err := h.ReadFile(rebootPackages); err == nil {
		if packages := strings.Fields(string(text)); len(packages) > 0 {
			c.Note += ": " + strings.Join(packages[:min(len(packages), 5)], ", ")
		}
	}
	return c, nil
}

// shutdownTimeout is how long a machine may take to end this process after the command to reboot.
const shutdownTimeout = 3 * time.Minute

// Apply reboots the machine. On a real machine it does not return, and the client reconnects.
func (*Reboot) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	before := host.CurrentBootID(h)
	if _, err := h.Run(ctx, "systemctl", "reboot"); err != nil {
		return fmt.Errorf("reboot: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if host.CurrentBootID(h) != before { // only on a simulated machine, whose reboot this process survives
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New(
				"it was asked to reboot, and is still up: see systemctl list-jobs there for what holds it up")
		case <-tick.C:
		}
	}
}
