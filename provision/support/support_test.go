package support

import (
	"slices"
	"strings"
	"testing"

	"clusterctl/provision/host/hostfake"
)

// A machine reports the versions of its programs in all directories. Missing programs are not run.
func TestVersionsOfInstalledProgramsAreCollected(t *testing.T) {
	h := &hostfake.Host{}
	for _, p := range []string{"/usr/bin/containerd", "/usr/sbin/runc", "/usr/local/bin/etcd"} {
		if err := h.WriteFile(p, strings.NewReader(""), 0o755, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, f := range Collect(t.Context(), h) {
		if strings.HasPrefix(f.Name, "versions/") {
			got = append(got, f.Name)
		}
	}
	slices.Sort(got)
	if want := []string{"versions/clusterctl.txt", "versions/containerd.txt", "versions/etcd.txt", "versions/runc.txt",
		"versions/systemd.txt"}; !slices.Equal(got, want) {
		t.Errorf("files %q", got)
	}
	for _, want := range []string{"/usr/bin/containerd --version", "/usr/sbin/runc " +
		"--version", "/usr/local/bin/etcd --version"} {
		if !slices.Contains(h.Log, want) {
			t.Errorf("%q was not asked", want)
		}
	}
	for _, did := range h.Log {
		if strings.HasPrefix(did, "/usr/local/bin/containerd") || strings.HasPrefix(did, "/usr/local/bin/runc") {
			t.Errorf("asked %q, which is not there", did)
		}
	}
}
