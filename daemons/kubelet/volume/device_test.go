package volume

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A block volume is passed to containers as a device, read-only if the pod says so, and released afterwards. Volumes of
// the wrong type or mode are rejected.
//
//style:long a table of volumes, with what a container gets of each
func TestABlockVolumeIsADevice(t *testing.T) {
	dir := t.TempDir()
	disk := makeDevices(t, dir)
	block, filesystem := corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem
	type change = func(*corev1.PersistentVolume, *corev1.Pod)
	as := func(mode corev1.PersistentVolumeMode, path string) change {
		return func(v *corev1.PersistentVolume, _ *corev1.Pod) {
			v.Annotations = nil
			v.Spec.VolumeMode, v.Spec.Local.Path = &mode, filepath.Join(dir, path)
		}
	}
	for name, c := range map[string]struct {
		change      change
		refused     string
		permissions string
	}{
		"a device":      {as(block, "disk"), "", "mrw"},
		"a link to one": {as(block, "link"), "", "mrw"},
		"to read": {func(v *corev1.PersistentVolume, p *corev1.Pod) {
			as(block, "disk")(v, p)
			p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
		}, "", "r"},
		"a directory": {as(block, ""), "is not a block device", ""},
		"a terminal":  {as(block, "terminal"), "is not a block device", ""},
		"a pipe":      {as(block, "pipe"), "is not a block device", ""},
		"nothing":     {as(block, "gone"), "no such file", ""},
		"a file system": {as(filesystem, ""), "volume v has volumeMode Filesystem, but is specified in " +
			"volumeDevices", ""},
		"a path": {func(v *corev1.PersistentVolume, p *corev1.Pod) {
			as(block, "disk")(v, p)
			v.Spec.HostPath, v.Spec.Local = &corev1.HostPathVolumeSource{Path: disk}, nil
		}, "only local volumes", ""},
		"with options": {func(v *corev1.PersistentVolume, p *corev1.Pod) {
			as(block, "disk")(v, p)
			v.Spec.MountOptions = []string{"ro"}
		}, "has no mount options", ""},
		"one provisioned": {func(v *corev1.PersistentVolume, _ *corev1.Pod) { v.Spec.VolumeMode = &block },
			"no such file", ""},
		"mounted by one": {func(v *corev1.PersistentVolume, p *corev1.Pod) {
			as(block, "disk")(v, p)
			p.Spec.InitContainers = []corev1.Container{{Name: "i",
				VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}}
		}, "volume v has volumeMode Block, but is specified in volumeMounts", ""},
		"of another node": {func(v *corev1.PersistentVolume, p *corev1.Pod) {
			as(block, "disk")(v, p)
			v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: "a", Operator: corev1.NodeSelectorOpExists}}}}}}
		}, "node affinity check failed", ""},
	} {
		m, s, p := provisioned(t)
		m.Mounter = Kernel{}
		m.Labels = func(context.Context) (map[string]string, error) { return nil, nil }
		p.Spec.Containers = []corev1.Container{
			{Name: "c", VolumeDevices: []corev1.VolumeDevice{{Name: "v", DevicePath: "/dev/data"}}},
		}
		s.volumes["pvc-1"].Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
		c.change(s.volumes["pvc-1"], p)
		t.Cleanup(func() { _ = (Kernel{}).UnmountAll(m.Root) })
		for range 2 { // the second call finds everything done
			if _, err := m.Setup(t.Context(), p); c.refused == "" && err != nil ||
				c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("%s: %v, want %q", name, err, c.refused)
			}
		}
		devices, err := m.Devices(p, &p.Spec.Containers[0])
		if c.refused != "" {
			if err == nil {
				t.Errorf("%s: a container is given %v", name, devices)
			}
			continue
		}
		if err != nil || len(devices) != 1 || devices[0].ContainerPath != "/dev/data" ||
			devices[0].Permissions != c.permissions {
			t.Fatalf("%s: a container is given %v: %v", name, devices, err)
		}
		var st unix.Stat_t
		if err := unix.Lstat(devices[0].HostPath, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK ||
			st.Rdev != unix.Mkdev(7, 211) {
			t.Errorf("%s: what a container is given is %o %x: %v", name, st.Mode, st.Rdev, err)
		}
		checkExclusive(t, name, m, p, disk)
	}
}

// makeDevices makes a block device, a link to it, a terminal and a pipe in a directory.
func makeDevices(t *testing.T, dir string) (disk string) {
	disk = filepath.Join(dir, "disk")
	for path, kind := range map[string]uint32{disk: unix.S_IFBLK, filepath.Join(dir, "terminal"): unix.S_IFCHR,
		filepath.Join(dir, "pipe"): unix.S_IFIFO} {
		if err := unix.Mknod(path, kind|0o600, int(unix.Mkdev(7, 211))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("disk", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	return disk
}

// checkExclusive checks that only the containers of a pod that use its device get it, and another pod only afterwards.
func checkExclusive(t *testing.T, name string, m *Manager, p *corev1.Pod, disk string) {
	visitor := &corev1.Container{Name: "e", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}
	if mounts, err := m.Mounts(p, visitor, nil, nil); err == nil {
		t.Errorf("%s: a container that came later has it mounted: %v", name, mounts)
	}
	second := p.DeepCopy()
	second.UID = types.UID("second")
	if _, err := m.Setup(t.Context(), second); err == nil ||
		!strings.Contains(err.Error(), "already in use by another pod") {
		t.Errorf("%s: another pod has the device of this pod: %v", name, err)
	}
	if err := m.Teardown(string(p.UID)); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if _, err := os.Lstat(disk); err != nil {
		t.Errorf("%s: the device itself: %v", name, err)
	}
	if _, err := m.Setup(t.Context(), second); err != nil {
		t.Errorf("%s: another pod, after the first: %v", name, err)
	}
}
