package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api/directory"
)

// movingMounter is a Mounter that moves the source to the target, so that the mount has the inode of the source.
type movingMounter struct{ Plain }

func (movingMounter) Bind(from, to string, _ []string) error {
	if err := os.Remove(to); err != nil {
		return err
	}
	return os.Rename(from, to)
}

func provisioned(t *testing.T) (*Manager, *fakeSource, *corev1.Pod) {
	t.Helper()
	m, s := manager(t)
	m.Provisioned = filepath.Join(t.TempDir(), "volumes")
	s.claims = map[string]*corev1.PersistentVolumeClaim{
		"d/c": {ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "c", UID: "c"},
			Spec: corev1.PersistentVolumeClaimSpec{
				VolumeName: "pvc-1",
			}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}},
	}
	s.volumes = map[string]*corev1.PersistentVolume{"pvc-1": {
		ObjectMeta: metav1.ObjectMeta{
			Name:        "pvc-1",
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": directory.Provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "d", Name: "c", UID: "c"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: directory.Path("pvc-1")},
			}}}}
	return m, s, newPod(
		corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}},
	)
}

func TestAProvisionedVolumeIsCreatedOnce(t *testing.T) {
	m, s, p := provisioned(t)
	at := filepath.Join(m.Provisioned, "pvc-1")
	for range 2 {
		if _, err := m.Setup(context.Background(), p); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(at); err != nil || info.Mode().Perm() != 0o777 {
			t.Fatalf("%v, %v", info, err)
		}
		if err := os.WriteFile(filepath.Join(at, "data"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(at, "data")); err != nil || string(data) != "x" {
		t.Errorf("what was written is %q, %v", data, err)
	}
	if info, err := os.Stat(m.Provisioned); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory of all is %v, %v", info, err)
	}
	// A volume that only claims to be provisioned does not create directories elsewhere.
	s.volumes["pvc-1"].Spec.Local.Path = "/etc/pvc-1"
	if _, err := m.Setup(context.Background(), p); err == nil ||
		!strings.Contains(err.Error(), directory.Path("pvc-1")) {
		t.Errorf("a volume that lies elsewhere: %v", err)
	}
}

func TestAVolumeThatIsNoDirectoryIsRejected(t *testing.T) {
	m, _, p := provisioned(t)
	if err := os.MkdirAll(m.Provisioned, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), filepath.Join(m.Provisioned, "pvc-1")); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Setup(context.Background(), p); err == nil || !strings.Contains(err.Error(), "is not a directory") {
		t.Errorf("a link: %v", err)
	}
}

func TestOnlyTheProvisionedVolumeIsRemoved(t *testing.T) {
	m, _, p := provisioned(t)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Setup(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(m.Provisioned, "pvc-1")
	for name, err := range map[string]error{
		"a link out":              os.Symlink(outside, filepath.Join(at, "out")),
		"a neighbour":             os.Mkdir(filepath.Join(m.Provisioned, "pvc-2"), 0o700),
		"a volume that is a link": os.Symlink(outside, filepath.Join(m.Provisioned, "link")),
	} {
		if err != nil {
			t.Fatal(name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "../volumes", "a/b", "pvc-1/..", "A", "..new-pvc-1"} {
		if err := m.RemoveProvisioned(name, false, ""); err == nil ||
			!strings.Contains(err.Error(), "invalid volume name") {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"pvc-1", "pvc-1", "link", "never"} {
		// The second removal succeeds because the directory is gone, although its volume says that it was created.
		if err := m.RemoveProvisioned(name, name == "pvc-1", "that"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(filepath.Join(m.Provisioned, name)); !os.IsNotExist(err) {
			t.Errorf("%s is there still: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(outside, "precious")); err != nil {
		t.Errorf("what a link leads to: %v", err)
	}
	if _, err := os.Stat(filepath.Join(m.Provisioned, "pvc-2")); err != nil {
		t.Errorf("the neighbour: %v", err)
	}
}

func TestAVolumeInUseIsNotRemoved(t *testing.T) {
	m, s, p := provisioned(t)
	m.Mounter = movingMounter{}
	if _, err := m.Setup(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	// movingMounter has moved the directory to the mount, so look up the users there.
	mounted := filepath.Join(m.PodDir("u"), "volumes", "kubernetes.io~local-volume", "v")
	users, err := m.usersOf(mounted)
	if err != nil || len(users) != 1 || users[0] != "u" {
		t.Fatalf("%q use it, %v", users, err)
	}
	// A volume cannot be removed while a pod holds its turn.
	if !m.locks.tryLock("pvc-1") {
		t.Fatal("the turn is taken")
	}

	if err := m.RemoveProvisioned("pvc-1", false, ""); !errors.Is(err, ErrInUse) {
		t.Errorf("in turn: %v", err)
	}
	m.locks.unlock("pvc-1")
	// A volume whose directory is missing, for example because its disk is not mounted, is neither created again nor
	// reported as removed.
	at := filepath.Join(m.Provisioned, "pvc-1")
	if err := m.RemoveProvisioned("pvc-1", false, ""); !errors.Is(err, ErrMissing) {
		t.Errorf("away: %v", err)
	}
	m.Mounter = Plain{}
	if _, err := m.Setup(context.Background(), p); err == nil || !strings.Contains(err.Error(), ErrMissing.Error()) {
		t.Errorf("away: %v", err)
	}
	if err := m.GrowProvisioned("pvc-1", 1); !errors.Is(err, ErrMissing) {
		t.Errorf("away: %v", err)
	}
	if err := os.Rename(mounted, at); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Setup(context.Background(), p); err != nil {
		t.Errorf("back: %v", err)
	}
	// A deleted claim is not mounted any more, and its volume is not created again.
	if err := m.RemoveProvisioned("pvc-1", false, ""); err != nil {
		t.Fatal(err)
	}
	now := metav1.Now()
	s.claims["d/c"].DeletionTimestamp = &now
	if _, err := m.Setup(context.Background(), p); err == nil ||
		!strings.Contains(err.Error(), "PVC is being deleted") {
		t.Errorf("a claim that goes: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(m.Provisioned, "pvc-1")); !os.IsNotExist(err) {
		t.Errorf("the volume was created again: %v", err)
	}
}

func TestAReinstalledMachineNeitherCreatesNorRemovesVolumes(t *testing.T) {
	const made, machine = directory.UsedAnnotation, directory.MachineAnnotation
	for name, c := range map[string]struct {
		annotations map[string]string
		exists      bool
		want        string
	}{
		"never had":                       {map[string]string{machine: "this"}, false, ""},
		"never had, from before":          {nil, false, ""},
		"had, and it is there":            {map[string]string{machine: "this", made: "true"}, true, ""},
		"had, brought to another machine": {map[string]string{machine: "that", made: "true"}, true, ""},
		"had, and this machine knows it not": {map[string]string{machine: "this", made: "true"}, false,
			"take the annotations"},
		"another machine of this name": {map[string]string{machine: "that"}, false, "it was provisioned on " +
			"machine that, and this is this"},
	} {
		t.Run(name, func(t *testing.T) {
			m, s, p := provisioned(t)
			m.MachineID = "this"
			at := filepath.Join(m.Provisioned, "pvc-1")
			if c.exists {
				if err := os.MkdirAll(at, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for key, value := range c.annotations {
				metav1.SetMetaDataAnnotation(&s.volumes["pvc-1"].ObjectMeta, key, value)
			}
			_, err := m.Setup(context.Background(), p)
			if c.want == "" && err != nil {
				t.Fatal(err)
			}
			// A directory that may be elsewhere is not reported as removed.
			removed := m.RemoveProvisioned("pvc-1", c.annotations[made] != "", c.annotations[machine])
			if (removed == nil) != (c.want == "") ||
				removed != nil &&
					(!errors.Is(removed, ErrMissing) || !strings.Contains(removed.Error(), "off the volume")) {
				t.Errorf("removed: %v", removed)
			}
			if c.want != "" {
				if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want one that says %q", err, c.want)
				}
				if _, err := os.Lstat(at); !os.IsNotExist(err) {
					t.Errorf("the directory was made: %v", err)
				}
			}
		})
	}
}
