package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/api/directory"
)

// A ReadWriteOncePod volume is used by one pod at a time, even if the pods did not pass the scheduler. One pod may use
// the claim in two volumes.
func TestAReadWriteOncePodVolumeHasOnePod(t *testing.T) {
	dir := t.TempDir()
	for name, source := range map[string]corev1.PersistentVolumeSource{
		"a path":                   {HostPath: &corev1.HostPathVolumeSource{Path: dir}},
		"a directory":              {Local: &corev1.LocalVolumeSource{Path: dir}},
		"one that was provisioned": {Local: &corev1.LocalVolumeSource{Path: directory.Path("pvc-1")}},
	} {
		for _, mode := range []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod, corev1.ReadWriteOnce} {
			m, s, _ := provisioned(t)
			m.Mounter = Kernel{}
			s.volumes["pvc-1"].Spec.PersistentVolumeSource = source
			s.volumes["pvc-1"].Spec.AccessModes = []corev1.PersistentVolumeAccessMode{mode}
			if name != "one that was provisioned" {
				s.volumes["pvc-1"].Annotations = nil
			}
			t.Cleanup(func() {
				if err := (Kernel{}).UnmountAll(m.Root); err != nil {
					t.Error(err)
				}
			})
			user := func(uid string) *corev1.Pod {
				claim := corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
				}
				return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: uid, UID: types.UID(uid)},
					Spec: corev1.PodSpec{
						Volumes: []corev1.Volume{{Name: "v", VolumeSource: claim}, {Name: "w", VolumeSource: claim}},
					}}
			}
			for range 2 { // the second call finds everything done
				if _, err := m.Setup(t.Context(), user("first")); err != nil {
					t.Fatalf("%s, %s: the first pod: %v", name, mode, err)
				}
			}
			_, err := m.Setup(t.Context(), user("second"))
			if mode == corev1.ReadWriteOnce {
				if err != nil {
					t.Errorf("%s, %s: the second pod: %v", name, mode, err)
				}
				continue
			}
			if want := "volume uses the ReadWriteOncePod access mode and is already in use by another " +
				"pod"; err == nil ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%s, %s: the second pod: %v", name, mode, err)
			}
			if err := m.Teardown("first"); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Setup(t.Context(), user("second")); err != nil {
				t.Errorf("%s, %s: the second pod, after the first: %v", name, mode, err)
			}
		}
	}
}

// A hostPath without a type is mounted whatever it is, and created if it is missing.
func TestAHostPathWithoutATypeIsMountedAsItIs(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "nowhere"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path string
		want os.FileMode
		bad  bool
	}{"new": {"a/b", os.ModeDir | 0o755, false}, "a file": {"file", 0o600, false}, "a link that leads " +
		"nowhere": {"link", 0, true}} {
		m, s, p := provisioned(t)
		m.Mounter = Kernel{}
		s.volumes["pvc-1"].Annotations = nil
		s.volumes["pvc-1"].Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(dir, c.path)},
		}
		at := m.volumeDir(p, &p.Spec.Volumes[0])
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
		_, err := m.Setup(t.Context(), p)
		if (err != nil) != c.bad {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if info, err := os.Stat(at); !c.bad && (err != nil || info.Mode() != c.want) {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "nowhere")); !os.IsNotExist(err) {
		t.Errorf("something was made through a link: %v", err)
	}
}
