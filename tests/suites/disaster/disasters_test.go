// Package disaster makes real machines fail in the ways that docs/operations/ describes, and follows the instructions
// of the page. A test passes if the cluster then serves again what it served before. tests/suites/chaos covers random
// faults with constant checks, and tests/suites/roll covers changes of a healthy cluster.
package disaster

import (
	"context"
	"flag"
	"hash/fnv"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	runAll        = flag.Bool("all", false, "all disasters; otherwise one of them, by turns from commit to commit")
	selectedNames = flag.String("only", "", "names of disasters, with commas between")
)

// disasterCases are the disasters, with the names of their pages.
var disasterCases = []struct {
	name string
	ends func(ctx context.Context, t *testing.T)
}{
	{"everything-renamed", testEverythingRenamed},
	{"state-lost", testStateLost},
	{"certificates-expired", testAllExpired},
	{"runtime-lost", testRuntimeLost},
	{"machine-returns", testRevokedReturns},
	{"disk-full", testDiskFull},
	{"control-plane-resized", testResize},
	{"etcd-majority-lost", testMajorityGone},
	{"etcd-all-lost", testAllDisksGone},
	{"etcd-no-space", testNoSpace},
	{"operator-killed", testOperatorKilled},
	{"two-operators", testTwoOperators},
	{"machine-of-another-cluster", testAnotherCluster},
}

// caseTimeout is the longest time for one disaster, beginning with bare machines.
const caseTimeout = 12 * time.Minute

// Each disaster ends well if the user follows its page.
// Proves P01 to P05, S10.
func TestTheClusterRecoversFromDisasters(t *testing.T) {
	chosen := chosenNames(t)
	for _, d := range disasterCases {
		if slices.Contains(chosen, d.name) {
			t.Run(d.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), caseTimeout)
				defer cancel()
				d.ends(ctx, t)
			})
		}
	}
}

// Each disaster has a page with instructions.
func TestEachDisasterIsDocumented(t *testing.T) {
	for _, d := range disasterCases {
		if _, err := os.Stat("../../../docs/operations/" + d.name + ".md"); err != nil {
			t.Errorf("%s: %v", d.name, err)
		}
	}
}

// chosenNames returns the names of the disasters to run, and logs them.
func chosenNames(t *testing.T) (names []string) {
	for _, d := range disasterCases {
		names = append(names, d.name)
	}
	switch {
	case *selectedNames != "":
		chosen := strings.Split(*selectedNames, ",")
		for _, name := range chosen {
			if !slices.Contains(names, name) {
				t.Fatalf("there is no disaster %q; there are %s", name, strings.Join(names, ", "))
			}
		}
		return chosen
	case *runAll:
		return names
	}
	commit, err := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Output()
	if err != nil {
		t.Fatalf("whose turn it is follows from the commit: %v", err)
	}
	h := fnv.New32a()
	_, _ = h.Write(commit)
	chosen := names[h.Sum32()%uint32(len(names))]
	t.Logf("of %d disasters, this commit's is %s; make disasters tries all", len(names), chosen)
	return []string{chosen}
}
