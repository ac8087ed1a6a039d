package network

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"clusterctl/daemons/network/link"
)

// Addresses of pods that no longer exist are released, and no others. Otherwise a machine whose runtime has lost its
// data would run out of addresses some day.
// Proves S27.
func TestAddressesOfDeletedPodsAreReleased(t *testing.T) {
	var none *netNamespace
	none.ip(t, "link", "set", "lo", "up")
	newNetNamespace(t).connectPod(t, 0, "10.1.0.9", "fd00:1::9") // the container's name is the first address
	none.ip(t, "link", "add", "former", "type", "veth", "peer", "name", "former1")
	none.ip(t, "link", "set", "former", "up")
	// A pod of an earlier release, with another interface name.
	none.ip(t, "route", "add", "10.1.0.8/32", "dev", "former")
	t.Cleanup(func() { none.ip(t, "link", "del", "former") })
	folder := t.TempDir()
	long := time.Now().Add(-time.Hour)
	for name, text := range map[string]string{
		"10.1.0.9": "10.1.0.9\r\neth0", "fd00:1::9": "10.1.0.9\r\neth0", // these exist
		"10.1.0.8": "former\r\neth0", "10.1.0.7": "gone\r\neth0", "fd00:1::7": "gone\r\neth0",
		"10.1.0.6": "", "10.1.0.5": "young\r\neth0", // empty since a power loss; of a pod that is starting
		"last_reserved_ip.0": "10.1.0.7", "lock": "",
	} {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if name != "10.1.0.5" {
			if err := os.Chtimes(path, long, long); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n, err := link.Reclaim(folder, time.Now()); err != nil || n != 3 {
		t.Errorf("given back: %d, %v", n, err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"10.1.0.5", "10.1.0.8", "10.1.0.9", "fd00:1::9", "last_reserved_ip.0", "lock"}; !slices.Equal(
		left,
		want,
	) {
		t.Errorf("left are %v, want %v", left, want)
	}
}
