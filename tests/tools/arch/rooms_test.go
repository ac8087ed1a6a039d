package arch

import (
	"slices"
	"strings"
	"testing"
)

// rooms lists the packages below a folder in import order. A package imports only packages of earlier rows. The
// folder's own package is ".".
var rooms = []struct {
	folder string
	rows   [][]string
}{
	{"daemons/kinds", [][]string{
		{"value", "warn", "expression", "cell"},
		{"validate", "kind"},
		{"volume"},
		{"podspec"},
		{"auth", "core", "device", "extensions", "flowcontrol", "network", "storage", "workload"},
		{"."},
		{"quota"},
	}},
	{"daemons/kubelet", [][]string{
		{"pod", "image", "probe", "device", "sleep"},
		{"cri", "cgroup", "volume", "credential"},
		{"logs", "machine", "metrics", "usage", "hollow"},
		{"certificate", "nodeagent", "server"},
		{"housekeeping"},
		{"."},
	}},
}

func TestPackagesOfAFolderImportOnlyEarlierOnes(t *testing.T) {
	packages := listPackages(t)
	for _, r := range rooms {
		rowOf := func(path string) int {
			name, inside := strings.CutPrefix(path, r.folder+"/")
			if path == r.folder {
				name, inside = ".", true
			}
			if !inside {
				return -1
			}
			return slices.IndexFunc(r.rows, func(row []string) bool { return slices.Contains(row, name) })
		}
		for _, p := range packages {
			if p.ImportPath != r.folder && !strings.HasPrefix(p.ImportPath, r.folder+"/") {
				continue
			}
			mine := rowOf(p.ImportPath)
			if mine < 0 {
				t.Errorf("%s is in no row of %s: add it to this test", p.ImportPath, r.folder)
				continue
			}
			for _, i := range p.Imports {
				other := strings.TrimPrefix(i, "clusterctl/")
				if theirs := rowOf(other); theirs >= mine {
					t.Errorf("%s imports %s, which is not in an earlier row", p.ImportPath, other)
				}
			}
		}
	}
}
