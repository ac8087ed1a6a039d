package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// newEscapingVolume creates a volume with links that a container has created, and a directory of the machine to which
// they lead.
func newEscapingVolume(t *testing.T) (volume, host string) {
	t.Helper()
	dir := t.TempDir()
	volume, host = filepath.Join(dir, "pods", "u", "volumes", "v"), filepath.Join(dir, "host")
	for _, d := range []string{volume + "/in", host} {
		if err := os.MkdirAll(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"abs": host, "up": "../../../../host", "gone": host + "/new", "upgone": "../../../../host/new", "good": "in",
		"loop": "loop", "proc": "/proc/self/cwd",
	} {
		if err := os.Symlink(to, filepath.Join(volume, name)); err != nil {
			t.Fatal(err)
		}
	}
	return volume, host
}

// Proves S24.
func TestSubPathIsNeverCreatedOutsideItsVolume(t *testing.T) {
	for _, c := range []struct {
		sub  string
		made string // path below the volume; empty if the sub-path is rejected
	}{
		{"new", "new"}, {"new/deep/er", "new/deep/er"}, {"new/", "new"}, {"./new", "new"}, {"good", "in"},
		{"good/made", "in/made"}, {"..data", "..data"},
		{"abs", ""}, {"abs/made", ""}, {"up/made", ""}, {"gone", ""}, {"gone/made", ""}, {"upgone/made/more", ""},
		{"good/../../made", ""}, {"../made", ""},
		{"/made", ""}, {"loop/made", ""}, {"proc/made", ""},
	} {
		t.Run(strings.ReplaceAll(c.sub, "/", "|"), func(t *testing.T) {
			volume, host := newEscapingVolume(t)
			m := &Manager{Mounter: Plain{}}
			err := m.bindSubPath(volume, c.sub, filepath.Join(t.TempDir(), "target"))
			if (err == nil) != (c.made != "") {
				t.Errorf("got %v", err)
			}
			if info, err := os.Stat(filepath.Join(volume, c.made)); c.made != "" && (err != nil || !info.IsDir()) {
				t.Errorf("%s is not there: %v", c.made, err)
			}
			if left, _ := os.ReadDir(host); len(left) != 0 {
				t.Errorf("on the machine there is now %v", left)
			}
		})
	}
}

// Proves S24.
func TestSubPathHasTheModeOfItsVolume(t *testing.T) {
	volume, _ := newEscapingVolume(t)
	if err := os.Chmod(volume, 0o777|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	if err := (&Manager{Mounter: Plain{}}).bindSubPath(volume, "a/b",
		filepath.Join(t.TempDir(), "target")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "a/b"} {
		if info, err := os.Stat(filepath.Join(volume, name)); err != nil ||
			info.Mode()&(os.ModePerm|os.ModeSetgid) != 0o777|os.ModeSetgid {
			t.Errorf("%s is %v (%v)", name, info.Mode(), err)
		}
	}
}

// fsGroup changes only files in the volume. Files outside, to which links lead, keep their group.
// Proves S24.
func TestGroupIsNotSetOutsideTheVolume(t *testing.T) {
	volume, host := newEscapingVolume(t)
	secret := filepath.Join(host, "shadow")
	for path, mode := range map[string]os.FileMode{secret: 0o600, volume + "/in/file": 0o600} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(secret, volume+"/in/shadow"); err != nil {
		t.Fatal(err)
	}
	group := int64(4321)
	if err := setGroup(volume, &group, false); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]uint32{secret: 0, host: 0, volume: 4321, volume + "/in": 4321, volume +
		"/in/file": 4321, volume + "/in/shadow": 4321} {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil || st.Gid != want {
			t.Errorf("%s has group %d (%v), want %d", path, st.Gid, err, want)
		}
		if path == secret && st.Mode&0o777 != 0o600 {
			t.Errorf("%s has mode %o", path, st.Mode)
		}
		if path == volume+"/in" && st.Mode&0o7777 != unix.S_ISGID|0o775 && st.Mode&0o7777 != unix.S_ISGID|0o777 {
			t.Errorf("%s has mode %o", path, st.Mode&0o7777)
		}
	}
}

// Proves S30.
func TestFilesAreWrittenOnlyInsideTheVolume(t *testing.T) {
	volume, host := newEscapingVolume(t)
	if err := os.Symlink("../../../../host", filepath.Join(volume, dataLink)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(host+"/a", []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = writeFiles(volume, map[string]volumeFile{"a": {data: []byte("1"), mode: 0o644}}, nil)
	if data, err := os.ReadFile(host + "/a"); err != nil || string(data) != "theirs" {
		t.Errorf("the machine's file is %q (%v)", data, err)
	}
	if data, err := os.ReadFile(volume + "/a"); err != nil || string(data) != "1" {
		t.Errorf("the volume's file is %q (%v)", data, err)
	}
	if left, _ := os.ReadDir(host); len(left) != 1 {
		t.Errorf("on the machine there is now %v", left)
	}
}

// Proves S23.
func TestRemovingAVolumeDoesNotFollowLinks(t *testing.T) {
	volume, host := newEscapingVolume(t)
	if err := os.WriteFile(host+"/kept", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mount := filepath.Join(volume, "in", "a mount")
	if err := os.Mkdir(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := (Kernel{}).Bind(host, mount, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
	root := filepath.Dir(filepath.Dir(filepath.Dir(filepath.Dir(volume))))
	// Plain does not unmount mounts that are deeper in the volume.
	if err := (&Manager{Root: root, Mounter: Plain{}}).Teardown("u"); err == nil ||
		!strings.Contains(err.Error(), "still mounted") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(host + "/kept"); err != nil {
		t.Fatal(err)
	}
	if err := (&Manager{Root: root, Mounter: Kernel{}}).Teardown("u"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(host + "/kept"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(root, "pods", "u")); !os.IsNotExist(err) {
		t.Errorf("the pod's directory is still there: %v", err)
	}
}

// Proves S23.
func TestDeepDirectoriesAreRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pod")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 3*maxDepth + 7 {
		if err := unix.Mkdirat(at, "d", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "d", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(at)
		at = next
	}
	unix.Close(at)
	// Lower the file limit to the usual thousand, because this process may have a higher one.
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1024, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	err = removeTree(dir)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// Proves S24.
func TestHostPathIsNotCreatedThroughALink(t *testing.T) {
	volume, host := newEscapingVolume(t)
	for _, kind := range []corev1.HostPathType{corev1.HostPathFileOrCreate, corev1.HostPathDirectoryOrCreate} {
		if err := checkHostPath(&corev1.HostPathVolumeSource{Path: volume + "/gone", Type: &kind}); err == nil {
			t.Errorf("%s was made through a link", kind)
		}
	}
	if left, _ := os.ReadDir(host); len(left) != 0 {
		t.Errorf("on the machine there is now %v", left)
	}
}
