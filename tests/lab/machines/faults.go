package machines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// Slow limits the machine's link in the direction of the machine to a rate in kilobits a second, with a short queue.
// ResetSlow undoes it.
func (m *Machine) Slow(ctx context.Context, kbit int) error {
	return runCommand(ctx, "nsenter", "--net="+m.lab.netns(), "tc", "qdisc", "replace", "dev", "vb-"+m.Name, "root",
		"tbf", "rate", fmt.Sprintf("%dkbit", kbit), "burst", "16kb", "latency", "300ms")
}

// ResetSlow undoes Slow.
func (m *Machine) ResetSlow(ctx context.Context) error {
	return runCommand(ctx, "nsenter", "--net="+m.lab.netns(), "tc", "qdisc", "del", "dev", "vb-"+m.Name, "root")
}

// Root returns the machine's file tree as its processes see it. It is empty if the machine is off.
func (m *Machine) Root() string {
	if leader := m.leaderPID(); leader != 0 {
		return fmt.Sprintf("/proc/%d/root", leader)
	}
	return ""
}

// IsRunning reports whether the machine is on.
func (m *Machine) IsRunning() bool { return m.leaderPID() != 0 }

// Reinstall starts the machine with an empty disk, under the same name and address but as another machine. It has
// another identity and another host key, which is added to the lab's known hosts without removing the former key. The
// lab must have been created without Options.Disk.
func (m *Machine) Reinstall(ctx context.Context) error {
	base, err := rootFS(ctx, io.Discard)
	if err != nil {
		return err
	}
	if err := errors.Join(m.PowerCut(ctx), m.remove()); err != nil {
		return fmt.Errorf("take the disk of %s away: %w", m.Name, err)
	}
	if err := os.RemoveAll(m.path("")); err != nil {
		return fmt.Errorf("take the disk of %s away: %w", m.Name, err)
	}
	if err := m.create(ctx, base, 0); err != nil {
		return fmt.Errorf("install %s: %w", m.Name, err)
	}
	return m.Start(ctx)
}
