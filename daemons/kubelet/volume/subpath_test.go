package volume

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// sourceRecorder is a Mounter that records the source of a bind mount.
type sourceRecorder struct {
	Plain
	from string
}

func (b *sourceRecorder) Bind(from, _ string, _ []string) (err error) {
	b.from, err = os.Readlink(from)
	return err
}

// A sub-path may be written in any form that stays in the volume.
// Proves S26.
func TestSubPathsAreNormalizedWithinTheVolume(t *testing.T) {
	for sub, want := range map[string]string{"logs/": "logs", "./x": "x", "a//b": "a/b", "..x": "..x", "x..": "x..",
		"a/./b": "a/b", "../x": "", "a/../../x": "", "a/..": "", "/x": ""} {
		dir, b := t.TempDir(), &sourceRecorder{}
		m := &Manager{Root: dir, Mounter: b}
		base := filepath.Join(dir, "base")
		if err := os.Mkdir(base, 0o755); err != nil {
			t.Fatal(err)
		}
		err := m.bindSubPath(base, sub, filepath.Join(dir, "target"))
		if want == "" {
			if err == nil {
				t.Errorf("%q was taken", sub)
			}
			continue
		}
		if err != nil || b.from != filepath.Join(base, want) {
			t.Errorf("%q is bound to %s, want %s: %v", sub, b.from, want, err)
		}
	}
}

// A restarting container gets the current object at its sub-path, because the previous one may be gone and writes to it
// would be lost.
func TestASubPathIsResolvedForEachContainer(t *testing.T) {
	base, target := t.TempDir(), filepath.Join(t.TempDir(), "pods", "target")
	m := &Manager{Mounter: Kernel{}}
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	put := func(name, content string) {
		t.Helper()
		at := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(base, "..new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(base, "..new"), filepath.Join(base, "sub")); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		name   string
		change func()
		file   string // name of a file in the mount; empty for the mount itself
		want   string
	}{
		{"a directory", func() { put("sub/data", "first") }, "data", "first"},
		{"the same", func() { put("sub/data", "second") }, "data", "second"},
		{"another of its name", func() {
			if err := os.Rename(filepath.Join(base, "sub"), filepath.Join(base, "was")); err != nil {
				t.Fatal(err)
			}
			put("sub/data", "third")
		}, "data", "third"},
		{"a link to a file", func() {
			if err := os.RemoveAll(filepath.Join(base, "sub")); err != nil {
				t.Fatal(err)
			}
			put("v1", "fourth")
			link("v1")
		}, "", "fourth"},
		{"a link to another", func() { put("v2", "fifth"); link("v2") }, "", "fifth"},
		{"a link to a directory", func() { link("was") }, "data", "second"},
	} {
		step.change()
		if err := m.bindSubPath(base, "sub", target); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if data, err := os.ReadFile(filepath.Join(target, step.file)); err != nil || string(data) != step.want {
			t.Errorf("%s: %q (%v), want %q", step.name, data, err, step.want)
		}
	}
	if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if mounted, err := m.Mounter.IsMounted(target); err != nil || mounted {
		t.Errorf("something is mounted there still (%v): each container that begins added one", err)
	}
}

// A sub-path that leads out of an image is rejected before the runtime is called.
func TestASubPathStaysInsideItsImage(t *testing.T) {
	m := &Manager{Root: t.TempDir(), Mounter: Plain{}}
	p := &corev1.Pod{
		Spec: corev1.PodSpec{
			Volumes: []corev1.Volume{
				{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "i"}}},
			},
		},
	}
	for sub, want := range map[string]string{"a//b/": "a/b", "../../etc": "", "/etc": "", "a/..": "", "a/../../b": ""} {
		spec := &corev1.Container{
			Name:         "c",
			VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v", SubPathExpr: "$(A)"}},
		}
		mounts, err := m.Mounts(p, spec, func(string) (string, error) { return sub, nil }, nil)
		if want == "" {
			if err == nil {
				t.Errorf("%q was taken: %v", sub, mounts)
			}
			continue
		}
		if err != nil || mounts[0].ImageSubPath != want {
			t.Errorf("%q: %v, %v", sub, mounts, err)
		}
	}
}

// An optional key that is added after a container has started is available at its sub-path for the next container.
func TestALaterKeyAppearsAtItsSubPath(t *testing.T) {
	m, s := manager(t)
	optional := true
	p := newPod(
		corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "late"},
				Optional:             &optional,
			},
		},
	)
	spec := &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/k", SubPath: "k"}}}
	m.Mounter = Kernel{}
	t.Cleanup(func() { _ = (Kernel{}).UnmountAll(m.Root) })
	begin := func() string {
		t.Helper()
		if _, err := m.Setup(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		mounts, err := m.Mounts(p, spec, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return mounts[0].HostPath
	}
	if info, err := os.Stat(begin()); err != nil || !info.IsDir() {
		t.Errorf("what is not there is %v, %v", info, err)
	}
	s.configMaps["late"] = &corev1.ConfigMap{Data: map[string]string{"k": "here"}}
	if data, err := os.ReadFile(begin()); err != nil || string(data) != "here" {
		t.Errorf("the next container has %q, %v", data, err)
	}
}
