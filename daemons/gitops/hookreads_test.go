package gitops

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// Clients that send their bodies slowly take all places. Each of them loses its place to another request after a
// second, the oldest first.
func TestSlowBodiesOfWebhooksGiveWay(t *testing.T) {
	var h hookReads
	began := time.Unix(1000, 0)
	var reads []*hookRead
	var stopped []int
	for i := range maxHooks {
		r, ok := h.start(began.Add(time.Duration(i)*time.Millisecond), func() error {
			stopped = append(stopped, i)
			return nil
		})
		if !ok {
			t.Fatalf("request %d has no place", i)
		}
		reads = append(reads, r)
	}
	none := func() error { return nil }
	if _, ok := h.start(began.Add(hookPatience-time.Millisecond), none); ok || len(stopped) > 0 {
		t.Errorf("a request has a place before a second has passed, and %v have lost theirs", stopped)
	}
	for range 2 {
		if _, ok := h.start(began.Add(hookPatience+time.Millisecond), none); !ok {
			t.Error("a request has no place after a second")
		}
	}
	if _, ok := h.start(began.Add(hookPatience+time.Millisecond), none); ok || !slices.Equal(stopped, []int{0, 1}) {
		t.Errorf("%v have lost their places, want the two that have had a second", stopped)
	}
	h.end(reads[0]) // has lost its place
	if _, ok := h.start(began.Add(hookPatience+time.Millisecond), none); ok {
		t.Error("a request that had lost its place left one")
	}
	h.end(reads[2])
	if _, ok := h.start(began, none); !ok || len(h.all) != maxHooks || len(stopped) != 2 {
		t.Errorf("a request that ended left no place: %d requests, %v have lost their places", len(h.all), stopped)
	}
	h.all[0].stop = func() error { return errors.New("not supported") }
	if _, ok := h.start(began.Add(time.Hour), none); ok {
		t.Error("a request has the place of another one that goes on")
	}
}
