package scheduler

import (
	"container/heap"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/scheduler/cluster"
	"clusterctl/daemons/scheduler/plugin"
	"clusterctl/daemons/scheduler/profile"
)

// parkedLimit is how long a pod waits for an event before it is tried again anyway.
const parkedLimit = 5 * time.Minute

// queue holds the pods without a node, in classes of pods that the scheduler cannot distinguish. If one is refused, all
// are, and an event is checked once for all of them.
type queue struct {
	now          func() time.Time
	firstBackoff time.Duration // back-off after the first refusal
	maxBackoff   time.Duration

	mu      sync.Mutex
	pods    map[types.UID]*item
	classes map[string]*class
	active  classHeap
	backoff classHeap // tried when their back-off has passed, or when active is empty
	failing classHeap // binding failed; not tried before their back-off has passed
	gated   map[types.UID]bool
	// pods whose victims are being deleted, and whether an event arrived since
	suspended map[types.UID]bool
	parked    [plugin.Everything + 1][]*class // by the events that may help
	ready     chan struct{}

	onEnter func(part, event string, pods int) // counts pods that enter a part of the queue; may be nil
}

type queuePart int

const (
	partNone    queuePart = iota // it has no waiting member
	partActive                   // can be tried now
	partBackoff                  // waits for its back-off, or until no class is active
	partFailing                  // waits for its back-off
	partParked                   // waits for an event
)

// refusal is the message that all pods of a class get.
type refusal struct {
	message string
	plugins []string
}

// item is one pod in the queue.
type item struct {
	pod             *cluster.Pod // its last known state
	class           *class
	pos             int // index in the members; -1 while it is being scheduled
	added           time.Time
	attempts        int
	refusalQueued   bool   // its refusal is waiting to be written
	shownNomination string // the last status.nominatedNodeName that the API showed
}

func newQueue(now func() time.Time, settings profile.Settings) *queue {
	return &queue{
		now: now, firstBackoff: settings.FirstBackoff, maxBackoff: settings.MaxBackoff,
		pods: map[types.UID]*item{}, classes: map[string]*class{}, gated: map[types.UID]bool{},
		suspended: map[types.UID]bool{},
		ready:     make(chan struct{}, 1),
	}
}

// waitingPods returns the pods without a node.
func (q *queue) waitingPods() []*cluster.Pod {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := make([]*cluster.Pod, 0, len(q.pods))
	for _, it := range q.pods {
		list = append(list, it.pod)
	}
	return list
}

// classKey returns the same key for pods that may share a refusal. A nominated pod has a class of its own.
func classKey(p *cluster.Pod) string {
	if p.Nominated != "" {
		return string(p.UID)
	}
	return p.Class()
}

// addOrUpdate adds or updates a pod. refused is the refusal to report for it at once, if equal pods were refused and
// nothing has changed since.
func (q *queue) addOrUpdate(p *cluster.Pod) (it *item, refused *refusal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it = q.pods[p.UID]
	opened := q.gated[p.UID]
	delete(q.gated, p.UID)
	if it == nil {
		it = &item{added: q.now(), shownNomination: p.Nominated}
		q.pods[p.UID] = it
		it.pod = p
		if opened {
			q.countEntries("active", gatesOpened, 1)
		} else {
			q.countEntries("active", podAdded, 1)
		}
		return it, q.joinClass(it)
	}
	if p.Nominated == it.shownNomination && it.pod.Nominated != p.Nominated { // ours is newer and is being written
		newer := *p
		newer.Nominated = it.pod.Nominated
		p = &newer
	} else {
		it.shownNomination = p.Nominated
	}
	if it.class.key == classKey(p) || it.pos < 0 {
		it.pod = p // a pod that is being scheduled gets its class when it returns to the queue
		return it, nil
	}
	waited, before := it.class.part != partActive, it.pod
	q.leaveClass(it)
	it.pod = p
	refused = q.joinClass(it)
	if waited && it.class.part == partActive {
		q.countEntries("active", updateEvent(before, p), 1)
	}
	return it, refused
}

// joinClass adds an item to its class, and returns the refusal to report for it.
func (q *queue) joinClass(it *item) *refusal {
	key := classKey(it.pod)
	c := q.classes[key]
	if c == nil {
		c = &class{key: key, priority: it.pod.Priority, sample: it.pod}
		q.classes[key] = c
	}
	if c.waitingCount == 0 {
		c.oldest = it.added
	}
	it.class, it.pos = c, len(c.members)
	c.members = append(c.members, it)
	c.waitingCount++
	switch c.part {
	case partParked:
		return c.refusal
	case partActive:
	default:
		q.activate(c, "")
	}
	return nil
}

// leaveClass removes an item from its class.
func (q *queue) leaveClass(it *item) {
	c := it.class
	if it.pos >= 0 {
		c.members[it.pos] = nil
		it.pos = -1
		c.waitingCount--
	} else {
		c.inFlight--
	}
	q.relocate(c)
}

// remove removes a pod that is gone, must not be scheduled, or has a node. It reports whether the pod was in the queue.
func (q *queue) remove(uid types.UID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.pods[uid]
	if it == nil {
		return false
	}
	q.leaveClass(it)
	delete(q.pods, uid)
	return true
}

// isWaiting reports whether a pod is still in the queue.
func (q *queue) isWaiting(it *item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pods[it.pod.UID] == it
}

// pop returns the next pod to schedule.
func (q *queue) pop() (*item, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.activateDue()
	if len(q.active) == 0 {
		if len(q.backoff) == 0 {
			return nil, false
		}
		q.activate(q.backoff[0], popFromBackoff) // no class is active, so the back-off need not be waited for
	}
	c := q.active[0]
	it := c.members[c.head]
	c.members[c.head] = nil
	it.pos = -1
	c.waitingCount--
	c.inFlight++
	it.attempts++
	q.relocate(c)
	return it, true
}

// removeScheduled removes a pod that was scheduled.
func (q *queue) removeScheduled(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pods[it.pod.UID] == it {
		it.class.refusals = 0
		q.leaveClass(it)
		delete(q.pods, it.pod.UID)
	}
}

// refuse returns a pod that does not fit to the queue. All of its class then wait for one of the events. It returns the
// items whose refusal has to be reported.
func (q *queue) refuse(it *item, wakes plugin.EventKind, r *refusal) []*item {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pods[it.pod.UID] != it {
		return nil // gone in the meantime
	}
	before := it.class
	before.inFlight--
	q.joinClass(it)
	if before != it.class {
		q.relocate(before)
	}
	c := it.class
	q.removeFromPart(c)
	c.refusal, c.helpfulEvents, c.parkedAt = r, wakes, q.now()
	c.verdicts = verdicts{} // free the memory: thousands of classes may wait
	c.refusals++
	c.retryAt = c.parkedAt.Add(q.backoffDuration(c.refusals))
	q.park(c)
	reported := make([]*item, 0, c.waitingCount)
	for _, m := range c.members {
		if m != nil {
			reported = append(reported, m)
		}
	}
	return reported
}

// retry returns a pod whose binding failed to the queue. It is tried again after a back-off and loses its nominated
// node.
func (q *queue) retry(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pods[it.pod.UID] != it {
		return
	}
	if it.pod.Nominated != "" {
		lesser := *it.pod
		lesser.Nominated = ""
		it.pod = &lesser
	}
	before := it.class
	before.inFlight--
	q.joinClass(it)
	if before != it.class {
		q.relocate(before)
	}
	c := it.class
	q.removeFromPart(c)
	c.refusals++
	c.retryAt = q.now().Add(q.backoffDuration(c.refusals))
	c.part = partFailing
	heap.Push(&q.failing, c)
	q.countEntries("backoff", attemptFailed, c.waitingCount)
	q.signal()
}

func (q *queue) backoffDuration(refusals int) time.Duration {
	d := q.firstBackoff
	for i := 1; i < refusals && d < q.maxBackoff; i++ {
		d *= 2
	}
	return min(d, q.maxBackoff)
}

// activateHelped activates the parked pods that an event may help. which checks one sample of each class.
func (q *queue) activateHelped(what plugin.ClusterEvent, which func(sample *cluster.Pod, plugins []string) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for wakes, parked := range q.parked {
		if plugin.EventKind(wakes)&what.EventKind == 0 {
			continue
		}
		// backwards, because the last class takes the place of a removed one
		for _, c := range slices.Backward(parked) {
			if which != nil && !which(c.sample, c.refusal.plugins) || q.isSuspended(c) {
				continue
			}
			q.removeFromPart(c)
			q.requeue(c, what.Name())
		}
	}
}

// requeue moves a class to where it is tried again, once its back-off has passed or no class is active.
func (q *queue) requeue(c *class, event string) {
	if q.now().Before(c.retryAt) {
		c.part = partBackoff
		heap.Push(&q.backoff, c)
		q.countEntries("backoff", event, c.waitingCount)
		q.signal()
		return
	}
	q.activate(c, event)
}

func (q *queue) activate(c *class, event string) {
	q.removeFromPart(c)
	q.countEntries("active", event, c.waitingCount)
	c.part = partActive
	heap.Push(&q.active, c)
	q.signal()
}

// countEntries counts pods that enter a part of the queue because of an event. It ignores an empty event: its caller
// has counted the pods.
func (q *queue) countEntries(part, event string, pods int) {
	if q.onEnter != nil && event != "" {
		q.onEnter(part, event, pods)
	}
}

func (q *queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// activateDue activates classes whose back-off has passed.
func (q *queue) activateDue() {
	now := q.now()
	for _, h := range []*classHeap{&q.backoff, &q.failing} {
		for len(*h) > 0 && !now.Before((*h)[0].retryAt) {
			q.activate((*h)[0], backoffComplete)
		}
	}
}

// activateStale activates pods that have been parked for longer than parkedLimit.
func (q *queue) activateStale() {
	q.mu.Lock()
	defer q.mu.Unlock()
	limit := q.now().Add(-parkedLimit)
	for _, parked := range q.parked {
		for _, c := range slices.Backward(parked) {
			if c.parkedAt.Before(limit) {
				q.removeFromPart(c)
				q.requeue(c, waitedTooLong)
			}
		}
	}
}

// untilNext returns how long there is nothing to try if no event arrives.
func (q *queue) untilNext() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case len(q.active)+len(q.backoff) > 0:
		return 0
	case len(q.failing) == 0:
		return time.Hour
	}
	return q.failing[0].retryAt.Sub(q.now())
}

// pendingRefusal returns the refusal to report for a pod: the last one of its class. It returns nil if the pod no
// longer waits.
func (q *queue) pendingRefusal(it *item) (*cluster.Pod, *refusal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pods[it.pod.UID] != it || it.pos < 0 {
		return nil, nil
	}
	return it.pod, it.class.refusal
}

// setGated records whether a pod has scheduling gates.
func (q *queue) setGated(uid types.UID, gated bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if gated {
		q.gated[uid] = true
	} else {
		delete(q.gated, uid)
	}
}
