package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// formatTimeout limits the work on one device. Checking a large one takes minutes.
const formatTimeout = 10 * time.Minute

// MountDevice implements Mounter. If the device has a file system, it is checked and mounted. Otherwise a file system
// is created, but only if the device looks empty or an earlier kubelet was killed while formatting it. Finding no file
// system does not prove that the device holds no data.
func (Kernel) MountDevice(ctx context.Context, f FileSystem, at string) error {
	ctx, stop := context.WithTimeout(ctx, formatTimeout)
	defer stop()
	reads := f.ReadOnly ||
		slices.ContainsFunc(f.Options, func(o string) bool { return slices.Contains(strings.Split(o, ","), "ro") })
	used, err := isInUse(f.Device)
	if err != nil {
		return err
	}
	started, err := f.isFormatMarked()
	if err != nil {
		return err
	}
	found, err := signature(ctx, f.Device)
	if err == nil && found == "xfs" && started && !used {
		if isPartial, failed := isInterruptedXFS(f.Device); isPartial || failed != nil {
			found, err = "", failed
		}
	}
	switch {
	case err != nil:
		return err
	case found != "" && f.Type != "" && found != f.Type:
		return fmt.Errorf("%s has a file system of type %s and not %s", f.Device, found, f.Type)
	case used && found == "":
		return fmt.Errorf("%s is in use, and has no file system that is known", f.Device)
	case used:
		// Do not check or change a file system that is already mounted.
	case found == "" && !reads:
		if !started {
			// After an interrupted format the contents are disposable and need not be empty. Such a device has no
			// signature, because programs write it last. See isInterruptedXFS for the exception.
			if err := checkEmpty(f.Device); err != nil {
				return err
			}
		}
		if found, err = f.format(ctx); err != nil {
			return err
		}
	case found == "":
		return fmt.Errorf("%s has no file system, and none is made for a volume that is only read", f.Device)
	case !reads:
		if err := repair(ctx, f.Device); err != nil {
			return err
		}
	}
	args := []string{"-t", found}
	if len(f.Options) > 0 {
		args = append(args, "-o", strings.Join(f.Options, ","))
	}
	if _, err = runTool(ctx, "mount", append(args, "--", f.Device, at)...); err != nil {
		return err
	}
	return f.clearFormatMark()
}

// isFormatMarked reports whether a kubelet started to format this very device and has not mounted the file system
// since.
func (f FileSystem) isFormatMarked() (bool, error) {
	note, err := os.ReadFile(f.FormatMark)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	current, err := f.deviceIdentity()
	return string(note) == current, err
}

// deviceIdentity returns the identification of the device for the file FormatMark. The name alone is not enough,
// because another disk may have it by now. The kernel's disk sequence number is unique since boot (missing before Linux
// 5.15).
func (f FileSystem) deviceIdentity() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Stat(f.Device, &st); err != nil {
		return "", fmt.Errorf("read %s: %w", f.Device, err)
	}
	dir, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)))
	if err != nil {
		return "", err
	}
	number, err := os.ReadFile(filepath.Join(dir, "diskseq"))
	if errors.Is(err, fs.ErrNotExist) { // a partition has the number of its disk
		number, err = os.ReadFile(filepath.Join(filepath.Dir(dir), "diskseq"))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return f.Device + "\n" + string(boot) + string(number), nil
}

// clearFormatMark durably removes the mark that a file system was being created, before a pod gets it. After that, a
// damaged file system is not recreated.
func (f FileSystem) clearFormatMark() error {
	if err := os.Remove(f.FormatMark); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return syncDir(filepath.Dir(f.FormatMark))
}

// isInterruptedXFS reports whether mkfs.xfs was interrupted. It writes the superblock first, with a mark
// (sb_inprogress) that it clears last.
func isInterruptedXFS(device string) (bool, error) {
	f, err := os.Open(device)
	if err != nil {
		return false, err
	}
	defer f.Close()
	super := make([]byte, 512)
	if _, err := f.ReadAt(super, 0); err != nil {
		return false, fmt.Errorf("read %s: %w", device, err)
	}
	const inProgress = 126
	return string(super[:4]) == "XFSB" && super[inProgress] != 0, nil
}

// isInUse reports whether a device is mounted or part of another device.
func isInUse(device string) (bool, error) {
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EBUSY) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("open %s: %w", device, err)
	}
	return false, unix.Close(fd)
}

// signature returns the type of the file system on a device, or "" if there is none. It returns an error for other
// contents, such as a partition table.
func signature(ctx context.Context, device string) (string, error) {
	out, err := runTool(ctx, "blkid", "-p", "-s", "TYPE", "-s", "USAGE", "-s", "PTTYPE", "-o", "export", "--", device)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	found := map[string]string{}
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		found[key] = value
	}
	switch {
	case found["TYPE"] != "" && found["USAGE"] == "filesystem":
		return found["TYPE"], nil
	case found["TYPE"] != "":
		return "", fmt.Errorf("%s is of type %s, which is not a file system", device, found["TYPE"])
	case found["PTTYPE"] != "":
		return "", fmt.Errorf("%s has partitions (%s), and cannot be a volume", device, found["PTTYPE"])
	}
	return "", nil
}

// zeroCheckBytes is how many bytes at the start and end of a device must be zero before it is formatted.
const zeroCheckBytes = 1 << 20

// checkEmpty returns an error if the start or end of a device contains data.
func checkEmpty(device string) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Seek(0, 2)
	if err != nil {
		return fmt.Errorf("read how large %s is: %w", device, err)
	}
	part := make([]byte, min(zeroCheckBytes, size))
	for _, from := range []int64{0, size - int64(len(part))} {
		if _, err := f.ReadAt(part, from); err != nil {
			return fmt.Errorf("read %s: %w", device, err)
		}
		if len(bytes.Trim(part, "\x00")) > 0 {
			return fmt.Errorf("%s has no file system that is known, but is not empty: wipe it (blkdiscard, or zeros "+
				"over its first and last MiB) if one may be made there", device)
		}
	}
	return nil
}

// format creates a file system, and returns its type.
func (f FileSystem) format(ctx context.Context) (string, error) {
	kind := f.Type
	if kind == "" {
		kind = defaultFileSystem
	}
	args := []string{f.Device}
	switch kind {
	case "ext2", "ext3", "ext4":
		args = []string{"-q", "-F", "-m0", f.Device}
	case "xfs":
		args = []string{"-q", "-f", f.Device}
	}
	note, err := f.deviceIdentity()
	if err != nil {
		return "", err
	}
	// The note is valid only until the machine reboots, so it need not be synced. A partial note matches nothing.
	if err := writeRecord(f.FormatMark, note); err != nil {
		return "", err
	}
	_, err = runTool(ctx, "mkfs."+kind, args...)
	if err == nil {
		return kind, nil // FormatMark is removed when the file system is mounted
	}
	err = fmt.Errorf("make a file system on %s: %w", f.Device, err)
	var exit *exec.ExitError
	if ctx.Err() != nil || errors.As(err, &exit) && !exit.Exited() {
		return "", err // the program was killed, and the next attempt starts over
	}
	return "", errors.Join(err, f.clearFormatMark())
}

// repair repairs what fsck can repair without asking, as at boot. If the machine has no fsck for the type, repair does
// nothing and relies on the kernel.
func repair(ctx context.Context, device string) error {
	const left, canceled = 4, 32 // exit codes: errors left uncorrected, canceled
	_, err := runTool(ctx, "fsck", "-a", device)
	var exit *exec.ExitError
	// If the program for the type was killed, the exit code of fsck is the same as if it were missing.
	if errors.As(err, &exit) && (exit.ExitCode()&canceled != 0 || strings.Contains(err.Error(), "exited with signal")) {
		return fmt.Errorf("the check of the file system on %s was killed: %w", device, err)
	}
	if errors.Is(err, exec.ErrNotFound) || errors.As(err, &exit) && exit.ExitCode() > 0 && exit.ExitCode()&left == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the file system on %s has errors that cannot be mended without a decision: %w", device, err)
	}
	return nil
}

// runTool runs a program of the machine and returns its output.
func runTool(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		text := strings.Join(strings.Fields(complaint.String()+" "+out.String()), " ")
		return out.String(), fmt.Errorf("%s: %w: %s", name, err, text[:min(len(text), 300)])
	}
	return out.String(), nil
}
