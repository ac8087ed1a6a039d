// Package size checks that the bundle's programs do not become larger.
package size

import (
	"os"
	"path/filepath"
	"testing"

	"clusterctl/tests/lab/cluster"
)

// maxBytes are the maximum sizes of stripped programs, in bytes. Before you raise a limit, check with -ldflags=-dumpdep
// what a new dependency adds. It may prevent the linker from removing unused methods (look for ReflectMethod), or
// import API versions that are not served.
var maxBytes = map[string]int64{
	"clusterctl": 75_000_000,
	"etcd":       35_000_000,
}

func TestProgramsStayBelowTheirSizeLimits(t *testing.T) {
	bundle, err := cluster.Bundle()
	if err != nil {
		t.Fatalf("%v; run make binaries", err)
	}
	for name, limit := range maxBytes {
		file, err := os.Stat(filepath.Join(bundle, name))
		if err != nil {
			t.Errorf("%v; run make binaries", err)
			continue
		}
		t.Logf("%s has %.1f MB", name, float64(file.Size())/1e6)
		if file.Size() > limit {
			t.Errorf("%s has %d bytes, more than %d", name, file.Size(), limit)
		}
	}
}
