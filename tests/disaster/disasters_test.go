// Package disaster makes real machines fail in the ways that docs/operations/ describes, and follows the instructions
// of the page. A test passes if the cluster then serves again what it served before. tests/chaos covers random faults
// with constant checks, and tests/roll covers changes of a healthy cluster.
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
	all  = flag.Bool("all", false, "all disasters; otherwise some of them, by turns from commit to commit")
	only = flag.String("only", "", "names of disasters, with commas between")
)

// disasters are the disasters, with the names of their pages.
var disasters = []struct {
	name string
	ends func(ctx context.Context, t *testing.T)
}{
	{"everything-renamed", everythingRenamed},
	{"state-lost", stateLost},
	{"certificates-expired", allExpired},
	{"runtime-lost", runtimeLost},
	{"machine-returns", revokedReturns},
	{"disk-full", diskFull},
	{"control-plane-resized", resized},
	{"etcd-majority-lost", majorityGone},
	{"etcd-all-lost", allDisksGone},
	{"etcd-no-space", noSpace},
	{"operator-killed", operatorKilled},
	{"two-operators", twoOperators},
	{"machine-of-another-cluster", anotherCluster},
}

// turn is the number of disasters that run for a commit.
const turn = 3

// limit is the longest time for one disaster, beginning with bare machines.
const limit = 12 * time.Minute

// Each disaster ends well if the user follows its page.
// Proves P01 to P05, S10.
func TestDisastersEndWell(t *testing.T) {
	chosen := chosen(t)
	for _, d := range disasters {
		if slices.Contains(chosen, d.name) {
			t.Run(d.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				d.ends(ctx, t)
			})
		}
	}
}

// Each disaster has a page with instructions.
func TestEachDisasterHasItsPage(t *testing.T) {
	for _, d := range disasters {
		if _, err := os.Stat("../../docs/operations/" + d.name + ".md"); err != nil {
			t.Errorf("%s: %v", d.name, err)
		}
	}
}

// chosen returns the names of the disasters to run, and logs them.
func chosen(t *testing.T) (names []string) {
	for _, d := range disasters {
		names = append(names, d.name)
	}
	switch {
	case *only != "":
		chosen := strings.Split(*only, ",")
		for _, name := range chosen {
			if !slices.Contains(names, name) {
				t.Fatalf("there is no disaster %q; there are %s", name, strings.Join(names, ", "))
			}
		}
		return chosen
	case *all || len(names) <= turn:
		return names
	}
	commit, err := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Output()
	if err != nil {
		t.Fatalf("whose turn it is follows from the commit: %v", err)
	}
	h := fnv.New32a()
	_, _ = h.Write(commit)
	first := int(h.Sum32() % uint32(len(names)))
	names = append(names[first:], names[:first]...)[:turn]
	t.Logf("of %d disasters, this commit's are %s; make disasters tries all", len(disasters), strings.Join(names, ", "))
	return names
}
