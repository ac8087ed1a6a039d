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
		{"value", "warn", "quantity", "cell"},
		{"expression"},
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

// testRooms are the folders of tests/, each with the other folders that it may import.
var testRooms = map[string][]string{
	"suites":    {"lab", "programs", "reference", "tools"},
	"bench":     {"lab", "programs", "reference", "tools"},
	"lab":       {},
	"programs":  {"lab"},
	"reference": {},
	"tools":     {"lab"},
}

func TestFoldersOfTestsImportOnlyWhatTheyMay(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range listPackages(t) {
		name, isTest := strings.CutPrefix(p.ImportPath, "tests/")
		if !isTest {
			continue
		}
		room, _, _ := strings.Cut(name, "/")
		allowed, isRoom := testRooms[room]
		if !isRoom {
			t.Errorf("%s is in none of the folders that this test lists", p.ImportPath)
			continue
		}
		seen[room] = true
		for _, i := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			other, isTest := strings.CutPrefix(i, "clusterctl/tests/")
			theirs, _, _ := strings.Cut(other, "/")
			if isTest && theirs != room && !slices.Contains(allowed, theirs) {
				t.Errorf("%s imports tests/%s: tests/%s may import only %v", p.ImportPath, other, room, allowed)
			}
		}
	}
	if len(seen) != len(testRooms) {
		t.Errorf("only the folders %v have packages", seen)
	}
}
