package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kubelet/pod"
)

// tmpfsRecorder records the options of tmpfs mounts.
type tmpfsRecorder struct {
	Plain
	options map[string]string // by volume
}

func (m *tmpfsRecorder) Tmpfs(path, options string) error {
	m.options[filepath.Base(path)] = options
	return m.Plain.Tmpfs(path, options)
}

// modeOf returns the mode bits of a file, including the special ones.
func modeOf(t *testing.T, path string) uint32 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Mode & 0o7777
}

// Proves S30.
func TestEmptyDirsHaveTheConfiguredMode(t *testing.T) {
	group, own, sticky := int64(os.Getgid()), int32(0o750), int32(0o1777)
	for name, row := range map[string]struct {
		source corev1.EmptyDirVolumeSource
		group  *int64
		mode   uint32 // mode of a directory
		memory string // or the options of a tmpfs
	}{
		"on the disk":              {corev1.EmptyDirVolumeSource{}, nil, 0o777, ""},
		"on the disk, for a group": {corev1.EmptyDirVolumeSource{}, &group, 0o2777, ""},
		"on the disk, as it says":  {corev1.EmptyDirVolumeSource{Mode: &own}, nil, 0o750, ""},
		"on the disk, sticky":      {corev1.EmptyDirVolumeSource{Mode: &sticky}, nil, 0o1777, ""},
		"in memory": {corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}, nil, 0,
			"mode=01777"},
		"in memory, for a group": {corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}, &group, 0,
			"mode=03777,gid="},
		"in memory, as it says": {corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, Mode: &own},
			nil, 0, "mode=0750"},
		"in memory, for both of them": {corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, Mode: &own},
			&group, 0, "mode=02770,gid="},
	} {
		mounts := &tmpfsRecorder{options: map[string]string{}}
		m := &Manager{Root: t.TempDir(), Source: &fakeSource{}, Mounter: mounts,
			Node: func() pod.Node { return pod.Node{} }}
		p := &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{FSGroup: row.group},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &row.source}}}}}
		p.UID = "u"
		if _, err := m.Setup(t.Context(), p); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if row.memory != "" {
			if got := mounts.options["v"]; !strings.HasPrefix(got, row.memory) {
				t.Errorf("%s: it is mounted with %q, want %s", name, got, row.memory)
			}
		} else if got := modeOf(t, m.volumeDir(p, &p.Spec.Volumes[0])); got != row.mode {
			t.Errorf("%s: its mode is %#o, want %#o", name, got, row.mode)
		}
	}
}

// A directory created for a bindSubPath is accessible like the volume: with the volume's group, and otherwise only for
// the owner of its files.
func TestNewSubPathsHaveTheModeOfTheirVolume(t *testing.T) {
	base := t.TempDir()
	for _, mode := range []uint32{0o777, 0o2770, 0o3777, 0o1777} {
		if err := unix.Chmod(base, mode); err != nil {
			t.Fatal(err)
		}
		sub := filepath.Join(base, "new")
		if err := (&Manager{Mounter: Plain{}}).bindSubPath(base, "new/below",
			filepath.Join(t.TempDir(), "target")); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{sub, filepath.Join(sub, "below")} {
			if got := modeOf(t, path); got != mode {
				t.Errorf("in a volume of mode %#o the new path has %#o", mode, got)
			}
		}
		if err := os.RemoveAll(sub); err != nil {
			t.Fatal(err)
		}
	}
}
