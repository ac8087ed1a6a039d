package gitops

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"clusterctl/daemons/config/gitsource"
)

// work is a reconciliation of one source. It goes on over several rounds while objects become healthy.
type work struct {
	cause
	rendered
	comparison
	stageProgress
	liveObjects

	applier     Applier
	isUnchanged bool // there is nothing to do
}

// cause is what a work was begun for: the generation of the source, and requests to reconcile it.
type cause struct {
	generation int64
	sync       string // value of SyncAnnotation
	requested  int64  // requests by webhooks when it began
}

func causeOf(s *Source) cause {
	return cause{generation: s.Generation, sync: s.Annotations[gitsource.SyncAnnotation], requested: s.Requested}
}

// rendered is what the source declares.
type rendered struct {
	revision  string
	digest    string
	redact    func(string) string // removes decrypted values from messages; nil if there are none
	declared  bool                // the rendered objects differ from those that were applied last
	stages    []stage
	obsolete  inventory // entries of the inventory that are no longer rendered
	rendering rendering // inputs of the rendering
}

// comparison is which objects need not be read, because they are as they were recorded, and what is recorded of the
// others.
type comparison struct {
	started  time.Time           // when the round began that has rendered the source
	verifies bool                // every object is read
	same     map[identity]bool   // objects that are as they were recorded; they are not read in this round
	versions map[identity]string // versions at which objects were as declared
}

// stageProgress is how far the stages are applied.
type stageProgress struct {
	next   int       // index of the stage to apply
	start  time.Time // when the objects of the last applied stage began to become healthy
	polls  int       // health checks since then
	pruned bool
}

// liveObjects are the objects of the cluster, and what the work has found or done to them.
type liveObjects struct {
	live    map[identity]*unstructured.Unstructured // as read or written in this round
	existed map[identity]bool                       // those that existed at the beginning, as far as it matters
	drifted []string
	changed []string // those that were created or changed
	revert  []string // those whose drift was reverted
}

// isCurrent reports whether work that has begun still does what the source declares.
func (w *work) isCurrent(s *Source) bool { return w != nil && w.cause == causeOf(s) }

// objects returns all rendered objects.
func (r *rendered) objects() (all []Object) {
	for _, st := range r.stages {
		all = append(all, st.objects...)
	}
	return all
}

// healthPoll returns the pause before the next health check. It grows from a quarter of a second to 5 seconds.
func (p *stageProgress) healthPoll() time.Duration {
	pause := 250 * time.Millisecond << min(p.polls, 5)
	return min(pause, 5*time.Second)
}
