package events

import (
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// Upstream's defaults.
const (
	remembered   = 4096             // entries in each cache; the least recently used ones are removed
	fewSimilar   = 10               // from this number on, events that differ only in their message are combined
	similarFor   = 10 * time.Minute // since the last similar event
	burst        = 25               // events of a source about an object
	refillPerSec = 1. / 300.
)

// correlator decides what to write for each event. It records earlier events by their hashes: the full keys of
// thousands of objects would need megabytes.
type correlator struct {
	clock   clock.Clock
	seed    maphash.Seed
	similar *lru.Cache // lookalikes by similarity
	seen    *lru.Cache // occurrence by identity
	budgets *lru.Cache // budget by talker
}

func newCorrelator(c clock.Clock) *correlator {
	return &correlator{
		clock:   c,
		seed:    maphash.MakeSeed(),
		similar: lru.New(remembered),
		seen:    lru.New(remembered),
		budgets: lru.New(remembered),
	}
}

// talker identifies the source, the type and the object of events.
type talker struct {
	component, host, of               string
	kind, namespace, name, apiVersion string
	uid                               types.UID
}

// similarity identifies events that differ only in their message.
type similarity struct {
	talker
	reason, controller, instance string
}

// identity identifies equal events. If combined, it identifies all similar ones, without a message.
type identity struct {
	similarity
	field, message string
	combined       bool
}

// lookalikes records similar events.
type lookalikes struct {
	messages []uint64 // distinct hashes, fewer than fewSimilar
	last     time.Time
}

// occurrence records an event that was written before.
type occurrence struct {
	count int32
	first metav1.Time
	name  string
}

// event returns the event to write. again reports that it was written before, and only its count changes. written is
// false if nothing has to be written. told stays unchanged.
func (c *correlator) event(told *corev1.Event) (_ *corev1.Event, again, written bool) {
	about := told.InvolvedObject
	from := talker{
		told.Source.Component,
		told.Source.Host,
		told.Type,
		about.Kind,
		about.Namespace,
		about.Name,
		about.APIVersion,
		about.UID,
	}
	alike := similarity{from, told.Reason, told.ReportingController, told.ReportingInstance}
	same := identity{alike, about.FieldPath, told.Message, false}
	now := c.clock.Now()

	combined := c.combine(alike, told.Message, now)
	if combined {
		same = identity{similarity: alike, combined: true}
	}
	occurred := occurrence{count: 1, first: told.FirstTimestamp, name: told.Name}
	if combined {
		occurred.first, occurred.name = metav1.NewTime(now), fmt.Sprintf("%s.%x", about.Name, now.UnixNano())
	}
	key := maphash.Comparable(c.seed, same)
	if before, ok := c.seen.Get(key); ok {
		occurred = before.(occurrence)
		occurred.count++
		again = true
	}
	c.seen.Add(key, occurred)
	if !c.affords(from) {
		return nil, false, false
	}

	e := *told
	if combined {
		e = corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: told.Namespace},
			InvolvedObject: about,
			LastTimestamp:  metav1.NewTime(now),
			Message:        "(combined from similar events): " + told.Message,
			Type:           told.Type,
			Reason:         told.Reason,
			Source:         told.Source,
		}
		if told.Action != "" { // upstream's older recorder sets no action
			e.EventTime, e.Action, e.ReportingController, e.ReportingInstance = told.EventTime, told.Action,
				told.ReportingController, told.ReportingInstance
		}
	}
	e.Name, e.Count, e.FirstTimestamp = occurred.name, occurred.count, occurred.first
	return &e, again, true
}

// combine reports whether there are so many similar events that they must be combined.
func (c *correlator) combine(alike similarity, message string, now time.Time) bool {
	var of *lookalikes
	key := maphash.Comparable(c.seed, alike)
	if found, ok := c.similar.Get(key); ok {
		of = found.(*lookalikes)
	}
	if of == nil || now.Sub(of.last) > similarFor {
		of = &lookalikes{}
	}
	of.last = now
	c.similar.Add(key, of)
	hash := maphash.String(c.seed, message)
	switch {
	case slices.Contains(of.messages, hash):
		return false
	case len(of.messages) == fewSimilar-1:
		return true
	}
	of.messages = append(of.messages, hash)
	return false
}

// budget is the number of events that a source may still write about an object.
type budget struct {
	tokens float64
	at     time.Time
}

// affords reports whether a source may write another event about an object.
func (c *correlator) affords(who talker) bool {
	now := c.clock.Now()
	key := maphash.Comparable(c.seed, who)
	left := &budget{burst, now}
	if found, ok := c.budgets.Get(key); ok {
		left = found.(*budget)
	} else {
		c.budgets.Add(key, left)
	}
	tokens := min(left.tokens+max(now.Sub(left.at), 0).Seconds()*refillPerSec, burst)
	if wait := (1 - tokens) / refillPerSec; wait >= time.Nanosecond.Seconds() {
		return false
	}
	left.tokens, left.at = tokens-1, now
	return true
}
