// Package disaster makes real machines go wrong in the ways that docs/operations/ has a page for, and does what that
// page says: a disaster has ended well when the cluster serves again what it served before. Faults that come at random,
// under constant checks, are tests/chaos's; a change of a cluster that is well is tests/roll's.
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

// disasters is each with its page's name.
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

// turn is how many disasters are tried for a commit.
const turn = 3

// limit is for one disaster, from bare machines on.
const limit = 12 * time.Minute

// Each disaster ends well by what its page says.
// Proves S10, P01, P02, P03, P04, P05.
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

// A disaster without a page is one that nobody knows how to end.
func TestEachDisasterHasItsPage(t *testing.T) {
	for _, d := range disasters {
		if _, err := os.Stat("../../docs/operations/" + d.name + ".md"); err != nil {
			t.Errorf("%s: %v", d.name, err)
		}
	}
}

// chosen names what is tried, and says so.
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
