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

// formatTimeout bounds what is done to a device at a time: a check of a large one takes minutes.
const formatTimeout = 10 * time.Minute

// Device implements Mounter. A device that has a file system is checked and mounted. One is made only on a device that
// is empty to all that can be seen, or on which a kubelet began to make one and was killed: that no file system is
// found says little about what else may be there.
func (Kernel) Device(ctx context.Context, f FileSystem, at string) error {
	ctx, stop := context.WithTimeout(ctx, formatTimeout)
	defer stop()
	reads := f.ReadOnly ||
		slices.ContainsFunc(f.Options, func(o string) bool { return slices.Contains(strings.Split(o, ","), "ro") })
	used, err := inUse(f.Device)
	if err != nil {
		return err
	}
	begun, err := f.begun()
	if err != nil {
		return err
	}
	there, err := signature(ctx, f.Device)
	if err == nil && there == "xfs" && begun && !used {
		if half, failed := halfXFS(f.Device); half || failed != nil {
			there, err = "", failed
		}
	}
	switch {
	case err != nil:
		return err
	case there != "" && f.Type != "" && there != f.Type:
		return fmt.Errorf("%s has a file system of type %s and not %s", f.Device, there, f.Type)
	case used && there == "":
		return fmt.Errorf("%s is in use, and has no file system that is known", f.Device)
	case used:
		// Nothing is done to a file system that others have mounted.
	case there == "" && !reads:
		if !begun {
			// else what there is, is half of what was begun: programs write last what tells of a file system, but for
			// xfs'
			if err := empty(f.Device); err != nil {
				return err
			}
		}
		if there, err = f.format(ctx); err != nil {
			return err
		}
	case there == "":
		return fmt.Errorf("%s has no file system, and none is made for a volume that is only read", f.Device)
	case !reads:
		if err := mend(ctx, f.Device); err != nil {
			return err
		}
	}
	args := []string{"-t", there}
	if len(f.Options) > 0 {
		args = append(args, "-o", strings.Join(f.Options, ","))
	}
	if _, err = tool(ctx, "mount", append(args, "--", f.Device, at)...); err != nil {
		return err
	}
	return f.whole()
}

// begun says whether a kubelet began to make a file system on this very device, and none was mounted from there since.
func (f FileSystem) begun() (bool, error) {
	note, err := os.ReadFile(f.Made)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	is, err := f.note()
	return string(note) == is, err
}

// note is what Made says of the device. Its name alone may be that of another disk by now: the kernel numbers those
// that it has seen since the machine's start (the number is missing before Linux 5.15).
func (f FileSystem) note() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Stat(f.Device, &st); err != nil {
		return "", fmt.Errorf("look at %s: %w", f.Device, err)
	}
	dir, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)))
	if err != nil {
		return "", err
	}
	number, err := os.ReadFile(filepath.Join(dir, "diskseq"))
	if errors.Is(err, fs.ErrNotExist) { // of a partition, whose disk has it
		number, err = os.ReadFile(filepath.Join(filepath.Dir(dir), "diskseq"))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return f.Device + "\n" + string(boot) + string(number), nil
}

// whole forgets for good that a file system was being made, before a pod has it: what is lost of it later is not made
// anew.
func (f FileSystem) whole() error {
	if err := os.Remove(f.Made); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return flush(filepath.Dir(f.Made))
}

// halfXFS says whether mkfs.xfs has not come to its end: it writes the superblock first, with a mark (sb_inprogress)
// that goes last.
func halfXFS(device string) (bool, error) {
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

// inUse says whether a device is mounted, by whomever, or part of another device.
func inUse(device string) (bool, error) {
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EBUSY) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("open %s: %w", device, err)
	}
	return false, unix.Close(fd)
}

// signature is the type of the file system on a device, or "" where none is known. What is neither, partitions for one,
// is refused.
func signature(ctx context.Context, device string) (string, error) {
	out, err := tool(ctx, "blkid", "-p", "-s", "TYPE", "-s", "USAGE", "-s", "PTTYPE", "-o", "export", "--", device)
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
		return "", fmt.Errorf("%s is of type %s, which is no file system", device, found["TYPE"])
	case found["PTTYPE"] != "":
		return "", fmt.Errorf("%s has partitions (%s), and is no volume", device, found["PTTYPE"])
	}
	return "", nil
}

// looked is how much of a device's beginning and end has to be empty before a file system is made there.
const looked = 1 << 20

// empty refuses a device that has something at its beginning or end.
func empty(device string) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Seek(0, 2)
	if err != nil {
		return fmt.Errorf("read how large %s is: %w", device, err)
	}
	part := make([]byte, min(looked, size))
	for _, from := range []int64{0, size - int64(len(part))} {
		if _, err := f.ReadAt(part, from); err != nil {
			return fmt.Errorf("read %s: %w", device, err)
		}
		if len(bytes.Trim(part, "\x00")) > 0 {
			return fmt.Errorf(
				"%s has no file system that is known, but is not empty: wipe it (blkdiscard, or zeros over its first "+
					"and last MiB) if one may be made there",
				device,
			)
		}
	}
	return nil
}

// format makes a file system, and returns its type.
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
	note, err := f.note()
	if err != nil {
		return "", err
	}
	// It counts until the machine starts anew, so that it need not be on the disk; half of it says nothing.
	if err := writeNote(f.Made, note); err != nil {
		return "", err
	}
	_, err = tool(ctx, "mkfs."+kind, args...)
	if err == nil {
		return kind, nil // the note goes when it is mounted
	}
	err = fmt.Errorf("make a file system on %s: %w", f.Device, err)
	var exit *exec.ExitError
	if ctx.Err() != nil || errors.As(err, &exit) && !exit.Exited() {
		return "", err // it was killed, and the next try begins anew
	}
	return "", errors.Join(err, f.whole())
}

// mend mends what can be mended without a decision, as at a machine's start. What a machine has no program for is left
// to the kernel.
func mend(ctx context.Context, device string) error {
	const left, canceled = 4, 32 // errors that were not mended
	_, err := tool(ctx, "fsck", "-a", device)
	var exit *exec.ExitError
	// Of a program that was killed, fsck itself says no more than of one that is not there.
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

// tool runs a program of the machine, and returns what it printed.
func tool(ctx context.Context, name string, args ...string) (string, error) {
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
