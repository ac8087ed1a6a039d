package volume

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Tmpfs volumes are not swapped out, on kernels that support that option.
func TestMemoryVolumesAreNotSwapped(t *testing.T) {
	knows := t.TempDir()
	if err := unix.Mount("tmpfs", knows, "tmpfs", 0, "noswap"); err == nil {
		t.Cleanup(func() { _ = unix.Unmount(knows, unix.MNT_DETACH) })
	} else {
		knows = ""
	}
	for _, options := range []string{"mode=0750,size=65536", ""} {
		dir := t.TempDir()
		if err := (Kernel{}).Tmpfs(dir, options); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		all, err := os.ReadFile("/proc/self/mounts")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(all)) {
			if fields := strings.Fields(line); fields[1] == dir &&
				strings.Contains(fields[3], "noswap") != (knows != "") {
				t.Errorf("with the options %q it is mounted as %s", options, fields[3])
			}
		}
		if info, err := os.Stat(dir); err != nil || options != "" && info.Mode().Perm() != 0o750 {
			t.Errorf("with the options %q it is %v, %v", options, info, err)
		}
	}
	if err := (Kernel{}).Tmpfs(t.TempDir(), "wild=1"); err == nil {
		t.Error("an option that there is not is taken")
	}
}
