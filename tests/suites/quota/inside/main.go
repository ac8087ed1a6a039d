// Command inside is the init process of a user-mode Linux machine, whose kernel has the quotas that many other kernels
// lack. It tests the kubelet's volumes on file systems with project quotas, and on file systems without.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fileSystem is a file system on which to test volumes.
type fileSystem struct {
	name, kind, device, options string
	hasQuotas                   bool
}

func main() {
	// Child processes: one that is killed in the middle of its work, and one that writes as containers do, without the
	// right to exceed quotas.
	if len(os.Args) > 1 && os.Args[1] == "work" {
		runWork()
		return
	}
	if len(os.Args) > 3 && os.Args[1] == "write" {
		writeAsUser(os.Args[2], os.Args[3])
		return
	}
	fmt.Println("outcome:", runChecks())
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func runChecks() string {
	if err := prepareKernel(); err != nil {
		return err.Error()
	}
	failed := 0
	for _, s := range []fileSystem{
		{"ext4", "ext4", "ubdb", "prjquota", true}, {"xfs", "xfs", "ubdc", "prjquota", true},
		{"ext4 without the option", "ext4", "ubdb", "", false}, {"tmpfs", "tmpfs", "", "size=64m", false},
	} {
		if err := s.mount(); err != nil {
			return fmt.Sprintf("mount %s: %v", s.name, err)
		}
		for _, c := range checks {
			if c.bounds && !s.hasQuotas {
				continue
			}
			if err := s.run(c.do); err != nil {
				failed++
				fmt.Printf("FAIL %s: %s: %v\n", s.name, c.name, err)
			} else {
				fmt.Printf("ok   %s: %s\n", s.name, c.name)
			}
		}
		if err := unix.Unmount(mountPoint, 0); err != nil {
			return fmt.Sprintf("unmount %s: %v", s.name, err)
		}
	}
	if failed > 0 {
		return fmt.Sprintf("%d failed", failed)
	}
	return "all well"
}

const mountPoint = "/mnt/fs"

// prepareKernel prepares a bare kernel for the checks. The root file system is that of the host, and is read-only.
func prepareKernel() error {
	for _, m := range []struct{ what, at string }{{"proc", "/proc"}, {"tmpfs", "/mnt"}} {
		if err := unix.Mount(m.what, m.at, m.what, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	for _, module := range []string{"quota_tree", "quota_v2"} {
		if err := loadModule(module); err != nil {
			return fmt.Errorf("load %s: %w", module, err)
		}
	}
	for i, name := range []string{"ubdb", "ubdc"} {
		if err := unix.Mknod(filepath.Join("/mnt", name), unix.S_IFBLK|0o600,
			int(unix.Mkdev(98, uint32(i+1)*16))); err != nil {
			return err
		}
	}
	return os.Mkdir(mountPoint, 0o755)
}

func loadModule(module string) error {
	found, err := filepath.Glob(filepath.Join(os.Getenv("MODULES"), "*/kernel/fs/quota", module+".ko"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("%d of it are below %s", len(found), os.Getenv("MODULES"))
	}
	f, err := os.Open(found[0])
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

func (s fileSystem) mount() error {
	from := "tmpfs"
	if s.device != "" {
		from = filepath.Join("/mnt", s.device)
	}
	return unix.Mount(from, mountPoint, s.kind, 0, s.options)
}
