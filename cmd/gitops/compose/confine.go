package compose

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"clusterctl/cmd/gitops/limit"
)

// Bounds of the process.
const (
	maxMemory = 1 << 30 // bytes of data
	maxCPU    = 30      // seconds
)

// confine limits the resources of the process, and lets it read only below the given paths. See
// https://docs.kernel.org/userspace-api/landlock.html.
func confine(paths []string) error {
	if err := limit.Process(maxMemory); err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: maxCPU, Max: maxCPU}); err != nil {
		return fmt.Errorf("limit the CPU time of the process: %w", err)
	}
	const reads = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	handled := unix.LandlockRulesetAttr{Handled_access_fs: reads | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_EXECUTE}
	ruleset, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&handled)),
		unsafe.Sizeof(handled.Handled_access_fs), 0)
	if errno != 0 {
		return fmt.Errorf("this kernel does not offer Landlock: %w", errno)
	}
	defer unix.Close(int(ruleset))
	for _, path := range paths {
		if err := allow(int(ruleset), path, reads); err != nil {
			return fmt.Errorf("allow reading %s: %w", path, err)
		}
	}
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// allow adds the right to read a path, and what is below it, to a ruleset.
func allow(ruleset int, path string, access uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return err
	}
	if info.Mode&unix.S_IFMT != unix.S_IFDIR {
		access = unix.LANDLOCK_ACCESS_FS_READ_FILE
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	if _, _, errno := syscall.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
