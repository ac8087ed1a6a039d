package check

import (
	"fmt"
	"sort"
)

// Event is an event that a watcher received.
type Event struct {
	Type     string // ADDED, MODIFIED or DELETED
	UID      string
	Revision int64
}

// Watch is one watcher's view of one collection: the list, and the events after it. A watcher that resumes at its last
// revision after a lost connection is still the same Watch.
type Watch struct {
	Name        string
	From        int64            // revision of the list
	Listed      map[string]int64 // UID to revision
	Events      []Event
	Upto        int64            // the revision of the list End
	End         map[string]int64 // UID to revision; nil: the watcher has not reached the end
	HasRelisted bool             // the watcher could not resume and had to list again; the next Watch continues
}

// Watches checks what watchers of the same collection received. It reports events out of the order of revisions, events
// that do not fit the state, and a final state that differs from the list. It also reports an event that a watcher did
// not receive, although another watcher or an acknowledged writer knows its revision.
func Watches(watches []Watch, written []int64) []string {
	var findings []string
	revisions := map[int64]bool{}
	for _, revision := range written {
		revisions[revision] = true
	}
	for _, w := range watches {
		for _, e := range w.Events {
			revisions[e.Revision] = true
		}
	}
	var all []int64
	for revision := range revisions {
		all = append(all, revision)
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	for _, w := range watches {
		findings = append(findings, w.checkOrder(all)...)
	}
	return findings
}

func (w Watch) checkOrder(earlier []int64) []string {
	var findings []string
	say := func(format string, args ...any) {
		findings = append(findings, fmt.Sprintf("watcher %s: "+format, append([]any{w.Name}, args...)...))
	}
	state := map[string]int64{}
	for uid, revision := range w.Listed {
		state[uid] = revision
	}
	deleted := map[string]bool{}
	seen := map[int64]bool{}
	last := w.From
	for _, e := range w.Events {
		if e.Revision <= last {
			say("%s of %s at revision %d came after revision %d", e.Type, e.UID, e.Revision, last)
		}
		last = max(last, e.Revision)
		seen[e.Revision] = true
		_, here := state[e.UID]
		switch {
		case deleted[e.UID]:
			say("%s of %s at revision %d came after its deletion", e.Type, e.UID, e.Revision)
		case e.Type == "ADDED" && here:
			say("%s was added again at revision %d", e.UID, e.Revision)
		case e.Type != "ADDED" && !here:
			say("%s of %s at revision %d, which was never added", e.Type, e.UID, e.Revision)
		}
		if e.Type == "DELETED" {
			deleted[e.UID] = true
			delete(state, e.UID)
		} else {
			state[e.UID] = e.Revision
		}
	}
	end := last
	if w.End != nil {
		end = max(last, w.Upto)
	}
	for _, revision := range earlier {
		if revision > w.From && revision <= end && !seen[revision] {
			say("the event of revision %d is missing between %d and %d", revision, w.From, end)
		}
	}
	if w.End == nil {
		if !w.HasRelisted {
			say("it stopped at revision %d and did not reach the end", last)
		}
		return findings
	}
	for uid, revision := range w.End {
		if state[uid] != revision {
			say("%s is at revision %d in the list at the end, and at %d for the watcher", uid, revision, state[uid])
		}
	}
	for uid, revision := range state {
		if _, here := w.End[uid]; !here {
			say("%s of revision %d is there for the watcher and not in the list at the end", uid, revision)
		}
	}
	return findings
}
