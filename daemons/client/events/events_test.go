package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
)

func newEvent(now time.Time, about, reason, message string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", about, now.UnixNano()), Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{
			Kind:       "Pod",
			Namespace:  "default",
			Name:       about,
			UID:        types.UID(about),
			APIVersion: "v1",
		},
		Reason: reason, Message: message, Type: corev1.EventTypeNormal, Count: 1, FirstTimestamp: metav1.NewTime(now),
		LastTimestamp: metav1.NewTime(now),
		Source:        corev1.EventSource{Component: "controller"}, ReportingController: "controller",
	}
}

// TestWrittenEventsMatchUpstream compares what is written with the output of client-go's correlator for the same
// events, with random pauses.
func TestWrittenEventsMatchUpstream(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		c := testclock.NewFakeClock(time.Unix(1_700_000_000, 0))
		ours, upstream := newCorrelator(c), record.NewEventCorrelator(c)
		for i := range 400 {
			c.Step(time.Duration(random.Int64N(int64(20 * time.Second))))
			if random.IntN(100) == 0 {
				c.Step(15 * time.Minute)
			}
			reason, message := "Few", fmt.Sprint(random.IntN(8))
			if random.IntN(2) == 0 {
				// upstream forgets an arbitrary message of those seen before, and we forget none
				reason, message = "Many", fmt.Sprint(i)
			}
			e := newEvent(c.Now(), []string{"a", "b"}[random.IntN(2)], reason, message)
			want, err := upstream.EventCorrelate(e.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			before := e.DeepCopy()
			got, again, written := ours.correlate(e)
			if !reflect.DeepEqual(e, before) {
				t.Fatalf("seed %d, event %d: the recorded event was changed", seed, i)
			}
			if written == want.Skip {
				t.Fatalf("seed %d, event %d, %s %s: written: %t, upstream: %t", seed, i, reason, message, written,
					!want.Skip)
			}
			if !written {
				continue
			}
			if again != (want.Event.Count > 1) || !reflect.DeepEqual(got, want.Event) {
				t.Fatalf("seed %d, event %d: written, again %t,\n%+v, upstream\n%+v", seed, i, again, got, want.Event)
			}
			if again {
				compareEffect(t, got, want.Patch)
			}
		}
	}
}

// compareEffect compares the result of our patch of an event with that of upstream's.
func compareEffect(t *testing.T, e *corev1.Event, theirs []byte) {
	t.Helper()
	sink := &sink{}
	if err := (&writer{destination: sink}).createOrPatch(t.Context(), e, true); err != nil {
		t.Fatal(err)
	}
	stored := newEvent(time.Unix(1_600_000_000, 0), e.InvolvedObject.Name, e.Reason, "before")
	original, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	got, err := strategicpatch.StrategicMergePatch(original, sink.patch, corev1.Event{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := strategicpatch.StrategicMergePatch(original, theirs, corev1.Event{})
	if err != nil || string(got) != string(want) {
		t.Fatalf("patched it is %s, upstream %s, %v", got, want, err)
	}
}

// sink records events. It returns the errors in errs first.
type sink struct {
	patch   []byte
	created []*corev1.Event
	patched int
	errs    []error
}

func (s *sink) next() error {
	if len(s.errs) == 0 {
		return nil
	}
	err := s.errs[0]
	s.errs = s.errs[1:]
	return err
}

func (s *sink) Create(_ context.Context, e *corev1.Event) (*corev1.Event, error) {
	s.created = append(s.created, e)
	return e, s.next()
}
func (s *sink) Patch(_ context.Context, e *corev1.Event, patch []byte) (*corev1.Event, error) {
	s.patch = patch
	s.patched++
	return e, s.next()
}

func TestEventsAreRetriedUnlessTheyAreRefused(t *testing.T) {
	gr := schema.GroupResource{Resource: "events"}
	refused := apierrors.NewForbidden(gr, "a", errors.New("no"))
	silent := errors.New("connection refused")
	for name, c := range map[string]struct {
		errs             []error
		created, patched int
		twice            bool
	}{
		"written":                 {created: 1},
		"counted":                 {twice: true, created: 1, patched: 1},
		"nobody answers at first": {errs: []error{silent, silent}, created: 3},
		"nobody answers at all": {errs: []error{silent, silent, silent, silent, silent, silent, silent, silent,
			silent, silent, silent, silent, silent}, created: maxTries},
		"refused":       {errs: []error{refused}, created: 1},
		"there already": {errs: []error{apierrors.NewAlreadyExists(gr, "a")}, created: 1},
		"counted, but has run out": {twice: true, errs: []error{nil, apierrors.NewNotFound(gr, "a")}, created: 2,
			patched: 1},
		"counted, nobody is there":   {twice: true, errs: []error{nil, silent}, created: 1, patched: 2},
		"counted, and it is refused": {twice: true, errs: []error{nil, refused}, created: 1, patched: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &sink{errs: c.errs}
			w := newWriter(s, 0)
			w.enqueue(t.Context(), newEvent(time.Now(), "a", "R", "m"))
			if c.twice {
				w.enqueue(t.Context(), newEvent(time.Now(), "a", "R", "m"))
			}
			w.awaitWritten()
			if len(s.created) != c.created || s.patched != c.patched {
				t.Errorf("created %d times and patched %d, want %d and %d", len(s.created), s.patched, c.created,
					c.patched)
			}
			for i := range s.created {
				if s.created[i].Name != s.created[0].Name {
					t.Errorf("it is called %s, and then %s", s.created[0].Name, s.created[i].Name)
				}
			}
		})
	}
}

// silentAPI accepts requests and never answers.
type silentAPI struct{ created, patched int }

func (s *silentAPI) Create(ctx context.Context, _ *corev1.Event) (*corev1.Event, error) {
	s.created++
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *silentAPI) Patch(ctx context.Context, _ *corev1.Event, _ []byte) (*corev1.Event, error) {
	s.patched++
	<-ctx.Done()
	return nil, ctx.Err()
}

// An event that the API server never answers must not block the other events of its lane.
func TestUnansweredEventsAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &silentAPI{}
		w := newWriter(s, retryPause)
		start := time.Now()
		w.enqueue(t.Context(), newEvent(time.Now(), "a", "R", "m"))
		w.awaitWritten()
		if took := time.Since(start); s.created != maxTries || took > maxTries*(writeTimeout+retryPause) {
			t.Errorf("the event was tried %d times in %s", s.created, took)
		}
	})
}

// awaitWritten returns when all queued events have been written.
func (w *writer) awaitWritten() {
	for range maxQueued {
		w.slots <- struct{}{}
	}
	for range maxQueued {
		<-w.slots
	}
}

// orderRecorder records the order of written events, and how many are written at once. Writes block until open is
// closed.
type orderRecorder struct {
	mu                 sync.Mutex
	open               chan struct{}
	messages           map[string][]string
	now, maxConcurrent int
}

func (o *orderRecorder) Create(_ context.Context, e *corev1.Event) (*corev1.Event, error) {
	o.mu.Lock()
	o.now++
	if o.now == lanes && o.maxConcurrent < lanes {
		close(o.open)
	}
	o.maxConcurrent = max(o.maxConcurrent, o.now)
	o.messages[e.InvolvedObject.Name] = append(o.messages[e.InvolvedObject.Name], e.Message)
	o.mu.Unlock()
	<-o.open
	o.mu.Lock()
	o.now--
	o.mu.Unlock()
	return e, nil
}
func (o *orderRecorder) Patch(context.Context, *corev1.Event, []byte) (*corev1.Event, error) {
	panic("unexpected Patch: no event repeats")
}

// TestEventsAboutOneObjectAreWrittenInOrder blocks each write until the maximum number of writes run.
func TestEventsAboutOneObjectAreWrittenInOrder(t *testing.T) {
	o := &orderRecorder{open: make(chan struct{}), messages: map[string][]string{}}
	w := newWriter(o, 0)
	const objects, each = 100, 5 // with so many objects, one in 10^5 runs has an empty lane
	for i := range each {
		for j := range objects {
			w.enqueue(t.Context(), newEvent(time.Now(), fmt.Sprint("pod-", j), "R", fmt.Sprint(i)))
		}
	}
	w.awaitWritten()
	if o.maxConcurrent != lanes {
		t.Errorf("%d events were written at once, want %d", o.maxConcurrent, lanes)
	}
	for name, got := range o.messages {
		if want := []string{"0", "1", "2", "3", "4"}; !slices.Equal(got, want) {
			t.Errorf("about %s was written %s", name, got)
		}
	}
	if len(o.messages) != objects {
		t.Errorf("events about %d objects were written, want %d", len(o.messages), objects)
	}
}

// TestQueuedEventsAreLimited records more events than may wait, while writes block.
func TestQueuedEventsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		// open is closed below
		o := &orderRecorder{open: make(chan struct{}), messages: map[string][]string{}, now: lanes + 1}
		w := newWriter(o, 0)
		taken := 0
		go func() {
			for i := range 2 * maxQueued {
				w.enqueue(ctx, newEvent(time.Now(), fmt.Sprint("pod-", i), "R", "m"))
				if ctx.Err() == nil {
					taken++
				}
			}
		}()
		synctest.Wait()
		if taken != maxQueued {
			t.Errorf("%d events were taken, want %d", taken, maxQueued)
		}
		cancel()
		close(o.open)
		synctest.Wait()
		if len(o.messages) > lanes {
			t.Errorf("%d events were written after the end, want those %d that were under way", len(o.messages), lanes)
		}
	})
}

func BenchmarkManySimilarEvents(b *testing.B) {
	c := newCorrelator(clock.RealClock{})
	events := make([]*corev1.Event, 1000)
	for i := range events {
		events[i] = newEvent(time.Now(), "a", "SuccessfulCreate", fmt.Sprintf("Created pod: web-%d", i))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.correlate(events[i%len(events)])
	}
}
