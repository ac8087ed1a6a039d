package gitops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"clusterctl/daemons/config/gitsource"
)

// Notification is a change of a source's Ready condition.
type Notification struct {
	Source   string    `json:"source"` // NAMESPACE/NAME
	URL      string    `json:"url"`    // of the source
	Revision string    `json:"revision,omitempty"`
	Ready    string    `json:"ready"` // True, False or Unknown
	Reason   string    `json:"reason"`
	Message  string    `json:"message"`
	Time     time.Time `json:"time"`
}

// Commit returns the ID of the commit of a revision, or "" if it has none.
func (n Notification) Commit() string {
	_, hash, _ := strings.Cut(n.Revision, "@sha1:")
	return hash
}

// isOutcome reports whether two notifications describe the same outcome of the same revision.
func (n Notification) isOutcome(other Notification) bool {
	return n.Revision == other.Revision && n.Ready == other.Ready && n.Reason == other.Reason
}

// Target is where a notification is sent.
type Target struct {
	Namespace string // of the source
	gitsource.Notification
	Data map[string][]byte // of the Secret
}

// Sender sends notifications.
type Sender interface {
	// Send sends a notification once. An error that implements interface{ Permanent() bool } may report that a retry
	// cannot succeed. Errors contain nothing of the Secret. Send ends when ctx ends.
	Send(ctx context.Context, to Target, n Notification) error
}

// Bounds of notifications. At most one is pending for each target of a source: a later one replaces it.
const (
	notifyWorkers  = 4                // tenants use all but one, and each of them one
	notifyInterval = 10 * time.Second // between two notifications of a target
	notifyTimeout  = 30 * time.Second // of one attempt, including the Secret
	notifyRetry    = 2 * time.Second  // pause after a first failure; it doubles
	notifyAttempts = 6
)

// noteKey identifies a target of a source by its index in the spec.
type noteKey struct {
	Key
	index int
}

// note is what is pending for a target, and what was sent to it last.
type note struct {
	pending  *Notification
	attempts int
	sent     Notification
	sentAt   time.Time
}

// notes are the notifications of all sources.
type notes struct {
	queue workqueue.TypedDelayingInterface[noteKey]

	mu   sync.Mutex
	all  map[noteKey]*note // guarded by mu
	busy map[string]bool   // namespaces of tenants that a worker sends for; guarded by mu
}

// occupy reserves a worker for the targets of a namespace. It returns false if tenants have no further one: their
// servers may answer slowly.
func (n *notes) occupy(namespace string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if namespace == gitsource.Namespace {
		return true
	}
	if n.busy[namespace] || len(n.busy) >= notifyWorkers-1 {
		return false
	}
	n.busy[namespace] = true
	return true
}

// vacate ends what occupy began.
func (n *notes) vacate(namespace string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.busy, namespace)
}

func newNotes(clock clock.WithTicker) *notes {
	return &notes{all: map[noteKey]*note{}, busy: map[string]bool{},
		queue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[noteKey]{Clock: clock})}
}

// put replaces what is pending for a target.
func (n *notes) put(key noteKey, what Notification) {
	n.mu.Lock()
	defer n.mu.Unlock()
	of := n.all[key]
	if of == nil {
		of = &note{}
		n.all[key] = of
	}
	of.pending, of.attempts = &what, 0
	n.queue.Add(key)
}

// next returns the notification to send to a target now, or nil. If nil, after is the time until the next one is due;
// zero means that none is.
func (n *notes) next(key noteKey, now time.Time) (what *Notification, after time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	of := n.all[key]
	if of == nil || of.pending == nil {
		return nil, 0
	}
	isRepeated := of.pending.isOutcome(of.sent) || of.pending.Ready == string(metav1.ConditionUnknown) &&
		of.sent.Ready == string(metav1.ConditionTrue) && of.sent.Revision == of.pending.Revision
	if isRepeated { // such as a pod that was replaced
		of.pending = nil
		return nil, 0
	}
	if wait := of.sentAt.Add(notifyInterval).Sub(now); wait > 0 {
		return nil, wait
	}
	return of.pending, 0
}

// done records the outcome of an attempt. It returns the pause before the next one; zero means that none follows.
func (n *notes) done(key noteKey, what *Notification, now time.Time, sent, again bool) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	of := n.all[key]
	if of == nil {
		return 0
	}
	if sent {
		of.sent, of.sentAt = *what, now
	}
	switch {
	case of.pending != what: // it was replaced meanwhile
		return time.Millisecond
	case sent || !again || of.attempts+1 >= notifyAttempts:
		of.pending = nil
		return 0
	}
	of.attempts++
	return notifyRetry << (of.attempts - 1)
}

// forget drops what is known of a source's targets.
func (n *notes) forget(key Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range gitsource.MaxNotifications {
		delete(n.all, noteKey{key, i})
	}
}

// announce queues notifications if the Ready condition has changed. before is the former status.
func (c *Controller) announce(s *Source, e *entry, before, st *gitsource.Status) {
	i := slices.IndexFunc(st.Conditions, func(c metav1.Condition) bool { return c.Type == gitsource.ConditionReady })
	if i < 0 || s.DeletionTimestamp != nil {
		return
	}
	ready := st.Conditions[i]
	n := Notification{Source: s.owner(), URL: s.Spec.URL, Revision: e.attempted, Ready: string(ready.Status),
		Reason: ready.Reason, Message: ready.Message, Time: c.Clock.Now().UTC().Truncate(time.Second)}
	if n.isOutcome(e.announced) {
		return
	}
	isFirst := e.announced.Ready == ""
	e.announced = n
	if isFirst && before.RenderedRevision == st.RenderedRevision && slices.ContainsFunc(before.Conditions,
		func(old metav1.Condition) bool {
			return old.Type == ready.Type && old.Status == ready.Status && old.Reason == ready.Reason
		}) {
		return // a former process has announced it
	}
	for i, to := range s.Spec.Notifications {
		isStatus := to.Type != gitsource.NotifyWebhook
		if isStatus && n.Commit() == "" || !isStatus && ready.Status == metav1.ConditionUnknown {
			continue
		}
		c.notes.put(noteKey{s.Key(), i}, n)
	}
}

// sendNotes sends notifications until the queue is shut down.
func (c *Controller) sendNotes(ctx context.Context) {
	for {
		key, stopped := c.notes.queue.Get()
		if stopped {
			return
		}
		after := recheckPause
		if c.notes.occupy(key.Namespace) {
			after = c.sendNote(ctx, key)
			c.notes.vacate(key.Namespace)
		}
		if after > 0 {
			c.notes.queue.AddAfter(key, after)
		}
		c.notes.queue.Done(key)
	}
}

// sendNote sends what is pending for a target. It returns the pause before the next attempt, or zero.
func (c *Controller) sendNote(ctx context.Context, key noteKey) time.Duration {
	what, after := c.notes.next(key, c.Clock.Now())
	if what == nil {
		return after
	}
	s := c.find(key.Key)
	if s == nil || key.index >= len(s.Spec.Notifications) || c.Sender == nil || len(s.Spec.Problems()) > 0 {
		return c.notes.done(key, what, c.Clock.Now(), false, false)
	}
	to := Target{Namespace: s.Namespace, Notification: s.Spec.Notifications[key.index]}
	err := c.sendOnce(ctx, s, to, *what)
	if ctx.Err() != nil {
		return 0
	}
	var permanent interface{ Permanent() bool }
	isFinal := errors.As(err, &permanent) && permanent.Permanent()
	again := c.notes.done(key, what, c.Clock.Now(), err == nil, !isFinal)
	if err != nil && again == 0 {
		c.event(s, corev1.EventTypeWarning, "NotificationFailed", fmt.Sprintf("%s: %v", to.Type, err))
	}
	return again
}

// sendOnce reads the Secret of a target and sends a notification.
func (c *steps) sendOnce(ctx context.Context, s *Source, to Target, n Notification) error {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	a, err := c.Cluster.As(s.Namespace, s.Account())
	if err != nil {
		return err
	}
	if to.Data, err = readSecret(ctx, a, s.Namespace, to.Secret); err != nil {
		return fmt.Errorf("read secret %s/%s: %w", s.Namespace, to.Secret, err)
	}
	return c.Sender.Send(ctx, to, n)
}
