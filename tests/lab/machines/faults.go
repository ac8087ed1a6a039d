package machines

import (
	"context"
	"fmt"
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
