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
	cacheSize     = 4096             // entries in each cache; the least recently used ones are removed
	similarLimit  = 10               // from this number on, events that differ only in their message are combined
	similarWindow = 10 * time.Minute // since the last similar event
	burst         = 25               // events of a source about an object
	refillPerSec  = 1. / 300.
)

// correlator decides what to write for each event. It records earlier events by their hashes: the full keys of
// thousands of objects would need megabytes.
type correlator struct {
	clock   clock.Clock
	seed    maphash.Seed
	similar *lru.Cache // lookalikes by similarity
	seen    *lru.Cache // occurrence by identity
	budgets *lru.Cache // budget by eventSource
}

func newCorrelator(c clock.Clock) *correlator {
	return &correlator{
		clock:   c,
		seed:    maphash.MakeSeed(),
		similar: lru.New(cacheSize),
		seen:    lru.New(cacheSize),
		budgets: lru.New(cacheSize),
	}
}

// eventSource identifies the source, the type and the object of events.
type eventSource struct {
	component, host, eventType        string
	kind, namespace, name, apiVersion string
	uid                               types.UID
}

// similarity identifies events that differ only in their message.
type similarity struct {
	eventSource
	reason, controller, instance string
}

// identity identifies equal events. If combined, it identifies all similar ones, without a message.
type identity struct {
	similarity
	field, message string
	isCombined     bool
}

// similarEvents records similar events.
type similarEvents struct {
	messages []uint64 // distinct hashes, fewer than similarLimit
	last     time.Time
}

// occurrence records an event that was written before.
type occurrence struct {
	count int32
	first metav1.Time
	name  string
}

// correlate returns the event to write. again reports that it was written before, and only its count changes. written
// is false if nothing has to be written. reported stays unchanged.
func (c *correlator) correlate(reported *corev1.Event) (_ *corev1.Event, again, written bool) {
	about := reported.InvolvedObject
	from := eventSource{
		reported.Source.Component,
		reported.Source.Host,
		reported.Type,
		about.Kind,
		about.Namespace,
		about.Name,
		about.APIVersion,
		about.UID,
	}
	alike := similarity{from, reported.Reason, reported.ReportingController, reported.ReportingInstance}
	same := identity{alike, about.FieldPath, reported.Message, false}
	now := c.clock.Now()

	combined := c.needsCombining(alike, reported.Message, now)
	if combined {
		same = identity{similarity: alike, isCombined: true}
	}
	occurred := occurrence{count: 1, first: reported.FirstTimestamp, name: reported.Name}
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
	if !c.consumeBudget(from) {
		return nil, false, false
	}

	e := *reported
	if combined {
		e = corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: reported.Namespace},
			InvolvedObject: about,
			LastTimestamp:  metav1.NewTime(now),
			Message:        "(combined from similar events): " + reported.Message,
			Type:           reported.Type,
			Reason:         reported.Reason,
			Source:         reported.Source,
		}
		if reported.Action != "" { // upstream's older recorder sets no action
			e.EventTime, e.Action, e.ReportingController, e.ReportingInstance = reported.EventTime, reported.Action,
				reported.ReportingController, reported.ReportingInstance
		}
	}
	e.Name, e.Count, e.FirstTimestamp = occurred.name, occurred.count, occurred.first
	return &e, again, true
}

// needsCombining reports whether there are so many similar events that they must be combined.
func (c *correlator) needsCombining(alike similarity, message string, now time.Time) bool {
	var of *similarEvents
	key := maphash.Comparable(c.seed, alike)
	if found, ok := c.similar.Get(key); ok {
		of = found.(*similarEvents)
	}
	if of == nil || now.Sub(of.last) > similarWindow {
		of = &similarEvents{}
	}
	of.last = now
	c.similar.Add(key, of)
	hash := maphash.String(c.seed, message)
	switch {
	case slices.Contains(of.messages, hash):
		return false
	case len(of.messages) == similarLimit-1:
		return true
	}
	of.messages = append(of.messages, hash)
	return false
}

// budget is the number of events that a source may still write about an object.
type budget struct {
	tokens     float64
	refilledAt time.Time
}

// consumeBudget reports whether a source may write another event about an object.
func (c *correlator) consumeBudget(source eventSource) bool {
	now := c.clock.Now()
	key := maphash.Comparable(c.seed, source)
	left := &budget{burst, now}
	if found, ok := c.budgets.Get(key); ok {
		left = found.(*budget)
	} else {
		c.budgets.Add(key, left)
	}
	tokens := min(left.tokens+max(now.Sub(left.refilledAt), 0).Seconds()*refillPerSec, burst)
	if wait := (1 - tokens) / refillPerSec; wait >= time.Nanosecond.Seconds() {
		return false
	}
	left.tokens, left.refilledAt = tokens-1, now
	return true
}
