package machines

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
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

// FillEtcd leaves no space on the disk of /var/lib/etcd, which must be one of its own.
func (m *Machine) FillEtcd(ctx context.Context) error {
	dir := m.path("etcd")
	var disk, host syscall.Statfs_t
	if err := errors.Join(syscall.Statfs(dir, &disk), syscall.Statfs(m.lab.dir(), &host)); err != nil {
		return fmt.Errorf("look at the disk of %s: %w", m.Name, err)
	}
	if disk.Fsid == host.Fsid {
		return fmt.Errorf("/var/lib/etcd of %s is on the host's disk: bring the lab up with a disk for it", m.Name)
	}
	free := int64(disk.Bavail) * disk.Bsize
	// Past the end of what is free: fallocate takes what there is and then fails.
	_ = exec.CommandContext(ctx, "fallocate", "-l", fmt.Sprint(free), filepath.Join(dir, "filler")).Run()
	_ = exec.CommandContext(ctx, "dd", "if=/dev/zero", "of="+filepath.Join(dir, "filler.rest"), "bs=4k").Run()
	return nil
}

// FreeEtcd undoes FillEtcd.
func (m *Machine) FreeEtcd() error {
	for _, name := range []string{"filler", "filler.rest"} {
		if err := os.Remove(filepath.Join(m.path("etcd"), name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
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

// makeEtcdDisk gives /var/lib/etcd a small file system of its own, in a sparse file.
func (m *Machine) makeEtcdDisk(ctx context.Context, mebibytes int) error {
	file, dir := m.path("etcd.img"), m.path("etcd")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(file, int64(mebibytes)<<20); err != nil {
		return err
	}
	if err := command(ctx, "mkfs.ext4", "-q", "-F", "-m", "0", file); err != nil {
		return err
	}
	if err := command(ctx, "mount", "-o", "loop", file, dir); err != nil {
		return err
	}
	return os.Remove(filepath.Join(dir, "lost+found"))
}
