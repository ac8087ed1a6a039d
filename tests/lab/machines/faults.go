package machines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// Slow makes the machine's link slow in the direction of the machine: so many kilobits a
// second, with a short queue behind that. Quick undoes it.
func (m *Machine) Slow(ctx context.Context, kbit int) error {
	return command(ctx, "nsenter", "--net="+m.lab.netns(), "tc", "qdisc", "replace", "dev", "vb-"+m.Name, "root",
		"tbf", "rate", fmt.Sprintf("%dkbit", kbit), "burst", "16kb", "latency", "300ms")
}

// Quick undoes Slow.
func (m *Machine) Quick(ctx context.Context) error {
	return command(ctx, "nsenter", "--net="+m.lab.netns(), "tc", "qdisc", "del", "dev", "vb-"+m.Name, "root")
}

// Root is the machine's file tree as it sees it itself, empty when it is off.
func (m *Machine) Root() string {
	if leader := m.leader(); leader != 0 {
		return fmt.Sprintf("/proc/%d/root", leader)
	}
	return ""
}

// Running says whether the machine is on.
func (m *Machine) Running() bool { return m.leader() != 0 }

// Reinstall has the machine begin anew with an empty disk, under its name and at its address, as somebody else: it has
// another identity and another host key, which the lab's known hosts have besides the former. The lab must have been
// made without Options.Disk.
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
