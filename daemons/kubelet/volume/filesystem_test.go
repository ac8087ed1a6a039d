package volume

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// newDevice returns an empty block device of 400 MiB.
func newDevice(t *testing.T) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 400<<20); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("losetup: %v: %s", err, out)
		}
	})
	return device
}

// newDeviceClaim returns a manager with a claim for a real block device.
func newDeviceClaim(t *testing.T, device string) (*Manager, *corev1.PersistentVolume, *corev1.Pod) {
	t.Helper()
	m, s, p := provisioned(t)
	m.Mounter = Kernel{}
	m.Labels = func(context.Context) (map[string]string, error) { return nil, nil }
	v := s.volumes["pvc-1"]
	v.Annotations, v.UID, v.Spec.Local.Path = nil, "volume", device
	t.Cleanup(func() {
		if err := (Kernel{}).UnmountAll(m.Root); err != nil {
			t.Error(err)
		}
	})
	return m, v, p
}

// The file system on a device is mounted with its options and the pod's group. An empty device is formatted once, and
// the next pod finds the data.
func TestAFileSystemOnADeviceIsMounted(t *testing.T) {
	device := newDevice(t)
	m, v, p := newDeviceClaim(t, device)
	v.Spec.MountOptions = []string{"noatime"}
	group := int64(4711)
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group}
	other, reader := p.DeepCopy(), p.DeepCopy()
	other.UID, reader.UID = "other", "reader"
	reader.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	at := func(p *corev1.Pod) string { return m.volumeDir(p, &p.Spec.Volumes[0]) }
	for i, pod := range []*corev1.Pod{p, p, other, reader} { // the second call finds everything done
		if _, err := m.Setup(t.Context(), pod); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		var st unix.Statfs_t
		var root unix.Stat_t
		if err := unix.Statfs(at(pod), &st); err != nil {
			t.Fatal(err)
		}
		if err := unix.Stat(at(pod), &root); err != nil {
			t.Fatal(err)
		}
		if reads := st.Flags&unix.ST_RDONLY != 0; st.Type != unix.EXT4_SUPER_MAGIC || st.Flags&unix.ST_NOATIME == 0 ||
			reads != (pod == reader) ||
			root.Gid != 4711 {
			t.Errorf("%d: its type is %x, its flags %x, its group %d", i, st.Type, st.Flags, root.Gid)
		}
		file := filepath.Join(at(pod), "data")
		switch data, err := os.ReadFile(file); {
		case i == 0:
			if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
				t.Fatal(err)
			}
		case string(data) != "kept":
			t.Errorf("%d: it has %q, %v", i, data, err)
		}
	}
	for _, pod := range []*corev1.Pod{p, other, reader} {
		if err := m.Teardown(string(pod.UID)); err != nil {
			t.Fatal(err)
		}
	}
	if used, err := isInUse(device); err != nil || used {
		t.Errorf("after the pods have gone it is in use: %t, %v", used, err)
	}
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	if _, err := m.Setup(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(at(p), "data")); string(data) != "kept" {
		t.Errorf("a later pod finds %q, %v", data, err)
	}
	if _, err := m.Setup(t.Context(), other); err == nil ||
		!strings.Contains(err.Error(), "already in use by another pod") {
		t.Errorf("of two pods that may only have it alone the second has %v", err)
	}
}

// No file system is created for a pod that only reads, nor on a device that is not empty.
func TestADeviceWithDataIsNotFormatted(t *testing.T) {
	mkfs := func(kind string) func(*testing.T, string) {
		return func(t *testing.T, device string) {
			t.Helper()
			if out, err := exec.Command("mkfs."+kind, "-q", device).CombinedOutput(); err != nil {
				t.Fatalf("mkfs: %v: %s", err, out)
			}
		}
	}
	write := writeTo
	nothing := func(*testing.T, string) {}
	as := func(kind string) func(*corev1.PersistentVolume, *corev1.Pod) {
		return func(v *corev1.PersistentVolume, _ *corev1.Pod) { v.Spec.Local.FSType = &kind }
	}
	for name, c := range map[string]struct {
		contains func(*testing.T, string)
		change   func(*corev1.PersistentVolume, *corev1.Pod)
		refused  string
		started  bool // a killed kubelet had started to format
	}{
		"empty, for another type": {nothing, as("ext3"), "", false},
		"empty, to read": {nothing, func(_ *corev1.PersistentVolume, p *corev1.Pod) {
			p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
		}, "none is made for a volume that is only read", false},
		"empty, to mount to read": {nothing,
			func(v *corev1.PersistentVolume, _ *corev1.Pod) { v.Spec.MountOptions = []string{"noatime,ro"} },
			"none is made for a volume that is only read", false},
		"a type that is a path":      {nothing, as("../x"), "is not a file system type", false},
		"an unknown type":            {nothing, as("nosuchfs"), "mkfs.nosuchfs", false},
		"a file system":              {mkfs("xfs"), as(""), "", false},
		"a file system of its type":  {mkfs("ext4"), as("ext4"), "", false},
		"a file system of another":   {mkfs("ext4"), as("xfs"), "has a file system of type ext4 and not xfs", false},
		"something at its beginning": {write(4096, "mine"), as(""), "is not empty", false},
		"something at its end":       {write(400<<20-10, "mine"), as(""), "is not empty", false},
		"half a file system":         {write(4096, "half"), as(""), "", true},
		"a partition table":          {write(510, "\x55\xaa"), as(""), "has partitions", false},
		"an option that it cannot have": {mkfs("ext4"),
			func(v *corev1.PersistentVolume, _ *corev1.Pod) { v.Spec.MountOptions = []string{"nolock"} }, "mount:",
			false},
	} {
		device := newDevice(t)
		c.contains(t, device)
		m, v, p := newDeviceClaim(t, device)
		c.change(v, p)
		if made := filepath.Join(m.Root, "formatting", "volume"); c.started {
			if err := os.MkdirAll(filepath.Dir(made), 0o750); err != nil {
				t.Fatal(err)
			}
			note, err := FileSystem{Device: device}.deviceIdentity()
			if err == nil {
				err = writeRecord(made, note)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		before := readBeginning(t, device)
		_, err := m.Setup(t.Context(), p)
		if c.refused == "" && err != nil ||
			c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s: %v, want %q", name, err, c.refused)
		}
		if c.refused != "" && name != "an option that it cannot have" &&
			!bytes.Equal(before, readBeginning(t, device)) {
			t.Errorf("%s: the device was written to", name)
		}
		if left, err := filepath.Glob(filepath.Join(m.PodDir(string(p.UID)), "volumes", "*", "..*")); c.refused == "" &&
			(err != nil || len(left) > 0) {
			t.Errorf("%s: %v is left, %v", name, left, err)
		}
		if err := (Kernel{}).UnmountAll(m.Root); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(m.Root, "formatting", "volume")); err == nil {
			t.Errorf("%s: it counts as being made", name)
		}
	}
}

// writeTo returns a function that writes a text to a device.
func writeTo(from int64, text string) func(*testing.T, string) {
	return func(t *testing.T, device string) {
		t.Helper()
		f, err := os.OpenFile(device, os.O_WRONLY|os.O_SYNC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte(text), from); err != nil {
			t.Fatal(err)
		}
	}
}

// readBeginning returns the first MiB of a device.
func readBeginning(t *testing.T, device string) []byte {
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1<<20)
	if _, err := f.Read(b); err != nil {
		t.Fatal(err)
	}
	return b
}
