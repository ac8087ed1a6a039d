package machines

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// filler is the file that fills a machine's disk. With Options.Disk, everything that a machine writes is in a separate
// file system in a sparse file. So its disk can be full without filling the host's.

const fillerFile = "filler"

func (m *Machine) makeDisk(ctx context.Context, size int64) error {
	f, err := os.Create(m.path("disk.img"))
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size), f.Close(), os.MkdirAll(m.path("disk"), 0o755)); err != nil {
		return fmt.Errorf("make the disk: %w", err)
	}
	if err := runCommand(ctx, "mkfs.ext4", "-q", "-m", "0", m.path("disk.img")); err != nil {
		return err
	}
	return runCommand(ctx, "mount", "-o", "loop", m.path("disk.img"), m.path("disk"))
}

// dataDir returns the path of a directory for what the machine writes.
func (m *Machine) dataDir(name string) string {
	if _, err := os.Stat(m.path("disk.img")); err == nil {
		return m.path("disk/" + name)
	}
	return m.path(name)
}

// Fill fills the machine's disk completely, and Free undoes it. The lab must have been created with Options.Disk.
func (m *Machine) Fill() error {
	if _, err := os.Stat(m.path("disk.img")); err != nil {
		return fmt.Errorf("fill the disk of %s: it has none of its own: %w", m.Name, err)
	}
	f, err := os.OpenFile(m.path("disk/"+fillerFile), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("fill the disk of %s: %w", m.Name, err)
	}
	defer f.Close()
	// Allocate smaller and smaller pieces until no block is free.
	var end int64
	for piece := int64(1 << 30); piece >= 4<<10; {
		switch err := syscall.Fallocate(int(f.Fd()), 0, end, piece); {
		case err == nil:
			end += piece
		case errors.Is(err, syscall.ENOSPC):
			piece /= 2
		case !errors.Is(err, syscall.EINTR):
			return fmt.Errorf("fill the disk of %s: %w", m.Name, err)
		}
	}
	return nil
}

// Free undoes Fill.
func (m *Machine) Free() error {
	if err := os.Remove(m.path("disk/" + fillerFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("free the disk of %s: %w", m.Name, err)
	}
	return nil
}
