// Package events writes daemons' events about objects to the API, as upstream's recorder does. A repeated event
// increases the count of the existing one. Many events that differ only in their message are combined. Events about one
// object beyond a burst are dropped. These decisions are made before anything is allocated for an event: a Deployment
// of a thousand pods causes a thousand events, of which 25 are written.
package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"clusterctl/kube/kubernetes"
)

// Number of attempts to write an event, and the pause between them.
const (
	maxTries   = 12
	retryPause = 10 * time.Second
	// writeTimeout limits one attempt. A request that the API server never answers blocks its lane for this time.
	writeTimeout = 30 * time.Second
)

const (
	lanes     = 8   // events written at once; the store syncs concurrent writes together
	maxQueued = 256 // events that wait to be written, besides the broadcaster's own queue
)

// NewBroadcaster returns a broadcaster for recorders. It writes their events with client until ctx ends or it is shut
// down.
func NewBroadcaster(ctx context.Context, client kubernetes.Interface) record.EventBroadcaster {
	b := record.NewBroadcaster(record.WithContext(ctx))
	w := newWriter(apiWriter{client}, retryPause)
	b.StartEventWatcher(func(e *corev1.Event) { w.enqueue(ctx, e) })
	return b
}

// destination receives events.
type destination interface {
	Create(ctx context.Context, event *corev1.Event) (*corev1.Event, error)
	Patch(ctx context.Context, event *corev1.Event, data []byte) (*corev1.Event, error)
}

// apiWriter writes events with a client.
type apiWriter struct{ client kubernetes.Interface }

func (a apiWriter) Create(ctx context.Context, e *corev1.Event) (*corev1.Event, error) {
	return a.client.CoreV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
}

func (a apiWriter) Patch(ctx context.Context, e *corev1.Event, data []byte) (*corev1.Event, error) {
	return a.client.CoreV1().Events(e.Namespace).Patch(ctx, e.Name, types.StrategicMergePatchType, data,
		metav1.PatchOptions{})
}

// writer writes events. Those about one object are written one after another, since a later one may increase the count
// of an earlier one.
type writer struct {
	destination destination
	correlator  *correlator
	pause       time.Duration
	seed        maphash.Seed
	slots       chan struct{} // a semaphore for events that wait or are being written
	lanes       [lanes]lane
}

// lane holds events that are written one after another. Its goroutine runs while there are any.
type lane struct {
	mu      sync.Mutex
	waiting []entry
	busy    bool
}

// entry is an event to write. again means that an existing event's count is updated.
type entry struct {
	*corev1.Event
	isRepeat bool
}

func newWriter(to destination, pause time.Duration) *writer {
	return &writer{
		destination: to,
		correlator:  newCorrelator(clock.RealClock{}),
		pause:       pause,
		seed:        maphash.MakeSeed(),
		slots:       make(chan struct{}, maxQueued),
	}
}

// enqueue queues an event to be written, unless it is dropped. It blocks while too many are waiting. Only one goroutine
// may call it at a time.
func (w *writer) enqueue(ctx context.Context, event *corev1.Event) {
	e, again, written := w.correlator.correlate(event)
	if !written {
		return
	}
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	about := &e.InvolvedObject
	l := &w.lanes[maphash.String(w.seed, about.Namespace+"/"+about.Name)%lanes]
	l.mu.Lock()
	l.waiting = append(l.waiting, entry{e, again})
	start := !l.busy
	l.busy = true
	l.mu.Unlock()
	if start {
		go w.drain(ctx, l)
	}
}

// drain writes the events of a lane.
func (w *writer) drain(ctx context.Context, l *lane) {
	for {
		l.mu.Lock()
		now := l.waiting
		l.waiting = nil
		l.busy = len(now) > 0
		l.mu.Unlock()
		if len(now) == 0 {
			return
		}
		for _, e := range now {
			if ctx.Err() == nil {
				w.write(ctx, e.Event, e.isRepeat)
			}
			<-w.slots
		}
	}
}

// write writes one event. It repeats the attempt if the server does not answer.
func (w *writer) write(ctx context.Context, e *corev1.Event, again bool) {
	// random, so that daemons do not all write at once when the API server recovers
	pause := time.Duration(rand.Float64() * float64(w.pause))
	for try := 1; ; try++ {
		err := w.createOrPatch(ctx, e, again)
		if err == nil {
			return
		}
		log := klog.FromContext(ctx).
			WithValues("about", klog.KRef(e.InvolvedObject.Namespace, e.InvolvedObject.Name), "reason", e.Reason,
				"message", e.Message)
		var construction *rest.RequestConstructionError
		var refused *apierrors.StatusError
		switch {
		case apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return
		case errors.As(err, &construction), errors.As(err, &refused), try == maxTries:
			log.Error(err, "an event is not written")
			return
		}
		log.Error(err, "an event cannot be written and is tried again")
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = w.pause
	}
}

// createOrPatch creates an event, or updates the count of the existing one. If that has expired, it creates the event
// again.
func (w *writer) createOrPatch(ctx context.Context, e *corev1.Event, again bool) error {
	// Write the last events even after ctx ends.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if again {
		patch, err := json.Marshal(countPatch{e.Count, e.LastTimestamp, e.Message})
		if err != nil {
			return fmt.Errorf("encode an event's count: %w", err)
		}
		if _, err = w.destination.Patch(ctx, e, patch); !apierrors.IsNotFound(err) {
			return err
		}
	}
	_, err := w.destination.Create(ctx, e)
	return err
}

// countPatch holds the fields that change in a repeated event.
type countPatch struct {
	Count         int32       `json:"count"`
	LastTimestamp metav1.Time `json:"lastTimestamp"`
	Message       string      `json:"message"`
}
