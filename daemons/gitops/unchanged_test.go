package gitops_test

import (
	"fmt"
	"testing"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// afterRounds waits until a number of further rounds have fetched the source.
func (w *world) afterRounds(n int) {
	w.t.Helper()
	fetched := w.repo.Fetched()
	w.until(fmt.Sprintf("%d more rounds", n), func() error {
		if now := w.repo.Fetched(); now < fetched+n {
			return fmt.Errorf("%d rounds", now-fetched)
		}
		return nil
	})
}

func TestOnlyChangedObjectsAreRead(t *testing.T) {
	w := newWorld(t)
	files := map[string]string{}
	for i := range 20 {
		name := fmt.Sprintf("o%02d", i)
		files[name+".yaml"] = configMap(name, "one")
	}
	w.declare("platform", "interval: 1m")
	w.ready("platform", "True", "", w.repo.Commit(files))
	w.afterRounds(1)
	w.cluster.Reads()
	w.afterRounds(2)
	if n := w.cluster.Reads(); n > 0 {
		t.Errorf("rounds without a change have read %d objects", n)
	}
	files["o07.yaml"] = configMap("o07", "two")
	w.ready("platform", "True", "", w.repo.Commit(files))
	if n := w.cluster.Reads(); n == 0 || n > 3 {
		t.Errorf("a commit that changes one object has read objects %d times", n)
	}
	w.wantValue("o07", "two")
	w.setValue("o03", "edited")
	w.wantValue("o03", "one")
	if n := w.cluster.Reads(); n == 0 || n > 3 {
		t.Errorf("a change of one object has read objects %d times", n)
	}
}

// A source whose account loses its rights is not ready any more, and what it has applied stays.
func TestRightsAreCheckedThoughNothingChanges(t *testing.T) {
	w := newWorld(t)
	w.declare("platform", "interval: 1m")
	w.ready("platform", "True", "", w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")}))
	w.afterRounds(2)
	w.cluster.Writes()
	w.cluster.SetAllow(func(string, string, gitops.ObjectID) bool { return false })
	w.ready("platform", "False", "ApplyFailed", "")
	w.wantWrites()
	w.cluster.SetAllow(nil)
	w.ready("platform", "True", "", "")
}

// A request of a user reads every object.
func TestARequestedRoundReadsEveryObject(t *testing.T) {
	w := newWorld(t)
	w.declare("platform", "interval: 1h")
	w.ready("platform", "True", "", w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")}))
	w.cluster.Reads()
	w.annotate("platform", gitsource.SyncAnnotation, "now")
	w.until("the request is carried out", func() error {
		if got := w.source("platform").Status.HandledSync; got != "now" {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
	if w.cluster.Reads() == 0 {
		t.Error("no object was read")
	}
}
