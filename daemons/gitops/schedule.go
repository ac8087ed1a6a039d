package gitops

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"clusterctl/daemons/config/gitsource"
)

// history is what the controller remembers of a source between reconciliations. It is lost on a restart, after which
// every source is reconciled.
type history struct {
	uid        string
	generation int64     // generation of the last reconciliation
	lastRun    time.Time // zero before the first one
	failures   int       // failures in a row
	recheck    bool      // another source has changed, so that an object may be pruned now
	handled    int64     // requests by webhooks that are carried out
}

// verdict is the decision what to do with a source now.
type verdict struct {
	run bool
	// reason and message describe why a source is not reconciled, for its Ready condition. They are empty if the
	// condition stays as it is.
	reason, message string
	stalled         bool          // only a change of the source helps
	after           time.Duration // when to decide again; zero means after a change
}

// maxBackoff is the longest pause between retries, unless the source's interval is longer.
const maxBackoff = 10 * time.Minute

// backoff returns the pause after a number of failures in a row. It doubles with each, up to the longer of the interval
// and maxBackoff.
func backoff(spec *gitsource.Spec, failures int) time.Duration {
	limit := max(spec.Every(), maxBackoff)
	pause := spec.Retry()
	for range failures - 1 {
		if pause >= limit {
			break
		}
		pause *= 2
	}
	return min(pause, limit)
}

// decide returns what to do with a source that is not being deleted. find returns other sources.
func decide(s *Source, h history, now time.Time, find func(Key) *Source) verdict {
	if problems := s.Spec.Problems(); len(problems) > 0 {
		var texts []string
		for _, p := range problems {
			texts = append(texts, p.Error())
		}
		return verdict{stalled: true, reason: "InvalidSpec", message: strings.Join(texts, "; ")}
	}
	if s.Spec.IsFolder() && s.Namespace != gitsource.Namespace {
		return verdict{stalled: true, reason: "InvalidSpec", message: fmt.Sprintf("spec.url: only sources in %s can "+
			"read folders of the control-plane machines", gitsource.Namespace)}
	}
	if s.Spec.Suspend {
		return verdict{}
	}
	if cycle := dependencyCycle(s, find); cycle != "" {
		return verdict{stalled: true, reason: "DependencyCycle", message: "the sources depend on each other: " + cycle}
	}
	for _, k := range s.dependencies() {
		switch d := find(k); {
		case d == nil:
			return verdict{reason: "DependencyNotReady", message: fmt.Sprintf("depends on %s, which does not exist", k)}
		case !d.isReady():
			return verdict{reason: "DependencyNotReady", message: fmt.Sprintf("depends on %s, which is not ready", k)}
		}
	}
	isNew := h.lastRun.IsZero() || h.uid != string(s.UID) || h.generation != s.Generation
	isRequested := s.Annotations[gitsource.SyncAnnotation] != s.Status.HandledSync || s.Requested != h.handled
	if isNew || isRequested || h.recheck {
		return verdict{run: true}
	}
	pause := s.Spec.Every()
	if h.failures > 0 {
		pause = backoff(&s.Spec, h.failures)
	}
	if wait := h.lastRun.Add(pause).Sub(now); wait > 0 {
		return verdict{after: wait}
	}
	return verdict{run: true}
}

// dependencyCycle returns a cycle of dependencies that contains the source, as "a → b → a", or "".
func dependencyCycle(s *Source, find func(Key) *Source) string {
	seen := map[Key]bool{}
	var walk func(at *Source, path string) string
	walk = func(at *Source, path string) string {
		for _, k := range at.dependencies() {
			if k == s.Key() {
				return path + " → " + k.String()
			}
			if next := find(k); next != nil && !seen[k] {
				seen[k] = true
				if cycle := walk(next, path+" → "+k.String()); cycle != "" {
					return cycle
				}
			}
		}
		return ""
	}
	return walk(s, s.Key().String())
}

// spread returns a pause that is up to a tenth shorter, so that sources that began together do not stay together.
func spread(pause time.Duration) time.Duration {
	return pause - time.Duration(rand.Int64N(int64(pause)/10+1))
}
