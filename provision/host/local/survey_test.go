package local

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clusterctl/provision/host"
)

// A port that a cluster needs and that is in use is found, with the process that uses it.
// Proves P05.
func TestPortOwnersAreFound(t *testing.T) {
	for _, port := range slices.Sorted(maps.Keys(host.DaemonPorts)) {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil || port == 53 { // already in use, or looked up by address
			continue
		}
		t.Cleanup(func() { _ = l.Close() })
		i := slices.IndexFunc(findListeners(), func(l host.Listener) bool { return l.Port == port })
		if i < 0 || !strings.HasSuffix(findListeners()[i].Process, fmt.Sprintf("process %d", os.Getpid())) {
			t.Errorf("port %d: %+v", port, findListeners())
		}
		return
	}
	t.Fatal("all ports of a cluster are in use here")
}

func TestSurveysDescribeThisMachine(t *testing.T) {
	s := collectSurvey()
	if s.Clock.IsZero() || s.FreeBytes[host.LibraryDir] == 0 || s.FreeBytes["/var/lib/etcd"] == 0 {
		t.Errorf("%+v", s)
	}
	if measureSync(t.TempDir()) <= 0 {
		t.Error("the disk takes no time")
	}
}

// The lists of modules contain what a kernel can load. Without these lists no module counts as missing.
func TestModulesAreMissingOnlyWhenNoListNamesThem(t *testing.T) {
	dir := t.TempDir()
	if isAbsentFromDir(dir, "overlay") {
		t.Error("missing, though nothing is known")
	}
	for name, text := range map[string]string{"modules.dep": "kernel/net/netfilter/nf_tables.ko.xz: " +
		"kernel/lib/x.ko.xz\nkernel/net/br-x.ko:\n", "modules.builtin": "kernel/fs/overlayfs/overlay.ko\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, missing := range map[string]bool{"overlay": false, "nf_tables": false, "br_x": false, "veth": true,
		"x": true} {
		if isAbsentFromDir(dir, name) != missing {
			t.Errorf("%s is missing: %t", name, !missing)
		}
	}
}
