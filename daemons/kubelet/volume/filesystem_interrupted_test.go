package volume

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// replaceProgram makes a script take precedence over a program of the machine.
func replaceProgram(t *testing.T, name, script string) (restore func()) {
	t.Helper()
	dir, path := t.TempDir(), os.Getenv("PATH")
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+path)
	return func() { t.Setenv("PATH", path) }
}

// formatAndKill makes a kubelet create a file system, and kills it after script has run in place of mkfs.
func formatAndKill(t *testing.T, m *Manager, p *corev1.Pod, mkfs, script string) {
	t.Helper()
	started := filepath.Join(t.TempDir(), "begun")
	defer replaceProgram(t, mkfs, script+"\ntouch "+started+"\nexec sleep 60\n")()
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	go func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(started); err == nil {
				kill()
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	if _, err := m.Setup(ctx, p); err == nil {
		t.Fatal("it was not killed")
	}
}

// writeAt writes data to a device at an offset.
func writeAt(t *testing.T, device string, from int64, what string) {
	t.Helper()
	f, err := os.OpenFile(device, os.O_WRONLY|os.O_SYNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(what), from); err != nil {
		t.Fatal(err)
	}
}

func realProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// If formatting was interrupted but a pod has used the volume since, a damaged file system is not replaced.
func TestADamagedFileSystemIsNotFormattedAfterAnInterruptedFormat(t *testing.T) {
	device := newDevice(t)
	m, _, p := newDeviceClaim(t, device)
	formatAndKill(t, m, p, "mkfs.ext4", realProgram(t, "mkfs.ext4")+` "$@"`)
	if _, err := m.Setup(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.volumeDir(p, &p.Spec.Volumes[0]), "data"), []byte("kept"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.Teardown(string(p.UID)); err != nil {
		t.Fatal(err)
	}
	writeAt(t, device, 1024, strings.Repeat("\x00", 1024)) // the superblock, of which there are backups
	if _, err := m.Setup(t.Context(), p); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("of a device whose superblock is damaged: %v", err)
	}
}

// The note of an interrupted format does not apply to another disk that has the same name now.
func TestADiskWithTheSameNameIsNotFormatted(t *testing.T) {
	device := newDevice(t)
	m, _, p := newDeviceClaim(t, device)
	formatAndKill(t, m, p, "mkfs.ext4", "")
	image := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(image, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 400<<20); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--detach", device}, {device, image}} {
		if out, err := exec.Command("losetup", args...).CombinedOutput(); err != nil {
			t.Fatalf("losetup: %v: %s", err, out)
		}
	}
	if _, err := m.Setup(t.Context(), p); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("of another disk that has the name by now: %v", err)
	}
}

// mkfs.xfs writes the signature first, and clears its in-progress mark last.
func TestAnInterruptedFormatOfXFSIsRepeated(t *testing.T) {
	device := newDevice(t)
	m, v, p := newDeviceClaim(t, device)
	xfs := "xfs"
	v.Spec.Local.FSType = &xfs
	formatAndKill(t, m, p, "mkfs.xfs", realProgram(t, "mkfs.xfs")+` "$@"`)
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	super := make([]byte, 512)
	_, err = f.Read(super)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	super[126] = 1 // sb_inprogress
	copy(super[224:228], "\x00\x00\x00\x00")
	binary.LittleEndian.PutUint32(super[224:], crc32.Checksum(super, crc32.MakeTable(crc32.Castagnoli)))
	writeAt(t, device, 0, string(super))
	if got, err := signature(t.Context(), device); got != "xfs" || err != nil {
		t.Fatalf("it is %q to blkid, %v", got, err)
	}
	if _, err := m.Setup(t.Context(), p); err != nil {
		t.Error(err)
	}
}

// An mkfs that was killed, for example by the OOM killer, is started again.
func TestAKilledMkfsIsRepeatedByTheSameKubelet(t *testing.T) {
	device := newDevice(t)
	m, _, p := newDeviceClaim(t, device)
	restore := replaceProgram(t, "mkfs.ext4",
		"echo half | dd of="+device+" bs=4096 seek=1 conv=notrunc,fsync 2>/dev/null\nkill -9 $$\n")
	if _, err := m.Setup(t.Context(), p); err == nil {
		t.Fatal("it was not killed")
	}
	restore()
	if _, err := m.Setup(t.Context(), p); err != nil {
		t.Error(err)
	}
}

// A file system whose check was killed is not mounted.
func TestAnIncompletelyCheckedFileSystemIsNotMounted(t *testing.T) {
	for _, script := range []string{"echo 'Warning... fsck.ext4 for device x exited with signal 9.' >&2\nexit " +
		"8\n", "exit 32\n"} {
		device := newDevice(t)
		m, _, p := newDeviceClaim(t, device)
		if out, err := exec.Command("mkfs.ext4", "-q", device).CombinedOutput(); err != nil {
			t.Fatalf("mkfs: %v: %s", err, out)
		}
		restore := replaceProgram(t, "fsck", script)
		if _, err := m.Setup(t.Context(), p); err == nil {
			t.Errorf("it was mounted after %q", script)
		}
		restore()
		if _, err := m.Setup(t.Context(), p); err != nil {
			t.Errorf("after a check that ended: %v", err)
		}
	}
}

// A file system is not mounted while a pod uses the raw device, because both would write.
func TestADeviceInUseIsNotMounted(t *testing.T) {
	device := newDevice(t)
	if out, err := exec.Command("mkfs.ext4", "-q", device).CombinedOutput(); err != nil {
		t.Fatalf("mkfs: %v: %s", err, out)
	}
	m, v, p := newDeviceClaim(t, device)
	block, files := corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem
	v.Spec.VolumeMode = &block
	if _, err := m.Setup(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	v.Spec.VolumeMode = &files // another volume with that name
	other := p.DeepCopy()
	other.UID = "other"
	if _, err := m.Setup(t.Context(), other); err == nil || !strings.Contains(err.Error(), "has it as a device") {
		t.Errorf("of a device that a pod has: %v", err)
	}
	if err := m.Teardown(string(p.UID)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Setup(t.Context(), other); err != nil {
		t.Errorf("after that pod: %v", err)
	}
}
