package volume

import (
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// When a container restarts, the hosts file is only rewritten if it has changed. On a full disk, rewriting would leave
// an empty file in the other containers, which mount the same file.
func TestAnUnchangedHostsFileIsNotWritten(t *testing.T) {
	m, _ := manager(t)
	p := newPod(corev1.VolumeSource{})
	path, err := m.WriteHosts(p, "web", "", []string{"10.0.0.7"})
	if err != nil {
		t.Fatal(err)
	}
	long := time.Unix(1e9, 0)
	for _, c := range []struct {
		ip      string
		written bool
	}{{"10.0.0.7", false}, {"10.0.0.8", true}} {
		if err := os.Chtimes(path, long, long); err != nil {
			t.Fatal(err)
		}
		if _, err := m.WriteHosts(p, "web", "", []string{c.ip}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if written := !info.ModTime().Equal(long); written != c.written {
			t.Errorf("with the address %s it was written: %t", c.ip, written)
		}
	}
}
