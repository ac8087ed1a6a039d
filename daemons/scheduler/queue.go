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
	now   func() time.Time
	first time.Duration // back-off after the first refusal
	most  time.Duration

	mu      sync.Mutex
	pods    map[types.UID]*item
	classes map[string]*class
	active  classHeap
	backoff classHeap // tried when their back-off has passed, or when active is empty
	failing classHeap // binding failed; not tried before their back-off has passed
	gated   map[types.UID]bool
	held    map[types.UID]bool              // pods whose victims are being deleted, and whether an event arrived since
	parked  [plugin.Everything + 1][]*class // by the events that may help
	ready   chan struct{}

	entered func(part, event string, pods int) // counts pods that enter a part of the queue; may be nil
}

type where int

const (
	idle      where = iota // it has no waiting member
	inActive               // can be tried now
	inBackoff              // waits for its back-off, or until no class is active
	inFailing              // waits for its back-off
	inParked               // waits for an event
)

// refusal is the message that all pods of a class get.
type refusal struct {
	message string
	plugins []string
}

// item is one pod in the queue.
type item struct {
	pod      *cluster.Pod // its last known state
	class    *class
	pos      int // index in the members; -1 while it is being scheduled
	added    time.Time
	attempts int
	told     bool   // its refusal is waiting to be written
	promised string // the last status.nominatedNodeName that the API showed
}

func newQueue(now func() time.Time, settings profile.Settings) *queue {
	return &queue{
		now: now, first: settings.FirstBackoff, most: settings.MaxBackoff,
		pods: map[types.UID]*item{}, classes: map[string]*class{}, gated: map[types.UID]bool{},
		held:  map[types.UID]bool{},
		ready: make(chan struct{}, 1),
	}
}

// all returns the pods without a node.
func (q *queue) all() []*cluster.Pod {
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

// put adds or updates a pod. told is the refusal to report for it at once, if equal pods were refused and nothing has
// changed since.
func (q *queue) put(p *cluster.Pod) (it *item, told *refusal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it = q.pods[p.UID]
	opened := q.gated[p.UID]
	delete(q.gated, p.UID)
	if it == nil {
		it = &item{added: q.now(), promised: p.Nominated}
		q.pods[p.UID] = it
		it.pod = p
		if opened {
			q.count("active", gatesOpened, 1)
		} else {
			q.count("active", podAdded, 1)
		}
		return it, q.join(it)
	}
	if p.Nominated == it.promised && it.pod.Nominated != p.Nominated { // ours is newer and is being written
		newer := *p
		newer.Nominated = it.pod.Nominated
		p = &newer
	} else {
		it.promised = p.Nominated
	}
	if it.class.key == classKey(p) || it.pos < 0 {
		it.pod = p // a pod that is being scheduled gets its class when it returns to the queue
		return it, nil
	}
	waited, was := it.class.at != inActive, it.pod
	q.leave(it)
	it.pod = p
	told = q.join(it)
	if waited && it.class.at == inActive {
		q.count("active", updated(was, p), 1)
	}
	return it, told
}

// join adds an item to its class, and returns the refusal to report for it.
func (q *queue) join(it *item) *refusal {
	key := classKey(it.pod)
	c := q.classes[key]
	if c == nil {
		c = &class{key: key, priority: it.pod.Priority, sample: it.pod}
		q.classes[key] = c
	}
	if c.live == 0 {
		c.oldest = it.added
	}
	it.class, it.pos = c, len(c.members)
	c.members = append(c.members, it)
	c.live++
	switch c.at {
	case inParked:
		return c.refusal
	case inActive:
	default:
		q.activate(c, "")
	}
	return nil
}

// leave removes an item from its class.
func (q *queue) leave(it *item) {
	c := it.class
	if it.pos >= 0 {
		c.members[it.pos] = nil
		it.pos = -1
		c.live--
	} else {
		c.flying--
	}
	q.tidy(c)
}

// drop removes a pod that is gone, must not be scheduled, or has a node. It reports whether the pod was in the queue.
func (q *queue) drop(uid types.UID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.pods[uid]
	if it == nil {
		return false
	}
	q.leave(it)
	delete(q.pods, uid)
	return true
}

// waits reports whether a pod is still in the queue.
func (q *queue) waits(it *item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pods[it.pod.UID] == it
}

// pop returns the next pod to schedule.
func (q *queue) pop() (*item, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.due()
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
	c.live--
	c.flying++
	it.attempts++
	q.tidy(c)
	return it, true
}

// done removes a pod that was scheduled.
func (q *queue) done(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pods[it.pod.UID] == it {
		it.class.refusals = 0
		q.leave(it)
		delete(q.pods, it.pod.UID)
	}
}

// refuse returns a pod that does not fit to the queue. All of its class then wait for one of the events. It returns the
// items whose refusal has to be reported.
func (q *queue) refuse(it *item, wakes plugin.Event, r *refusal) []*item {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pods[it.pod.UID] != it {
		return nil // gone in the meantime
	}
	was := it.class
	was.flying--
	q.join(it)
	if was != it.class {
		q.tidy(was)
	}
	c := it.class
	q.unplace(c)
	c.refusal, c.wakes, c.since = r, wakes, q.now()
	c.known = verdicts{} // free the memory: thousands of classes may wait
	c.refusals++
	c.until = c.since.Add(q.pause(c.refusals))
	q.park(c)
	told := make([]*item, 0, c.live)
	for _, m := range c.members {
		if m != nil {
			told = append(told, m)
		}
	}
	return told
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
	was := it.class
	was.flying--
	q.join(it)
	if was != it.class {
		q.tidy(was)
	}
	c := it.class
	q.unplace(c)
	c.refusals++
	c.until = q.now().Add(q.pause(c.refusals))
	c.at = inFailing
	heap.Push(&q.failing, c)
	q.count("backoff", attemptFailed, c.live)
	q.signal()
}

func (q *queue) pause(refusals int) time.Duration {
	d := q.first
	for i := 1; i < refusals && d < q.most; i++ {
		d *= 2
	}
	return min(d, q.most)
}

// move activates the parked pods that an event may help. which checks one sample of each class.
func (q *queue) move(what plugin.Happened, which func(sample *cluster.Pod, plugins []string) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for wakes, parked := range q.parked {
		if plugin.Event(wakes)&what.Event == 0 {
			continue
		}
		// backwards, because the last class takes the place of a removed one
		for _, c := range slices.Backward(parked) {
			if which != nil && !which(c.sample, c.refusal.plugins) || q.holds(c) {
				continue
			}
			q.unplace(c)
			q.wake(c, what.Name())
		}
	}
}

// wake moves a class to where it is tried again, once its back-off has passed or no class is active.
func (q *queue) wake(c *class, event string) {
	if q.now().Before(c.until) {
		c.at = inBackoff
		heap.Push(&q.backoff, c)
		q.count("backoff", event, c.live)
		q.signal()
		return
	}
	q.activate(c, event)
}

func (q *queue) activate(c *class, event string) {
	q.unplace(c)
	q.count("active", event, c.live)
	c.at = inActive
	heap.Push(&q.active, c)
	q.signal()
}

// count counts pods that enter a part of the queue. With an empty event, they are counted elsewhere.
func (q *queue) count(part, event string, pods int) {
	if q.entered != nil && event != "" {
		q.entered(part, event, pods)
	}
}

func (q *queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// due activates classes whose back-off has passed.
func (q *queue) due() {
	now := q.now()
	for _, h := range []*classHeap{&q.backoff, &q.failing} {
		for len(*h) > 0 && !now.Before((*h)[0].until) {
			q.activate((*h)[0], backoffComplete)
		}
	}
}

// flush activates pods that have been parked for longer than parkedLimit.
func (q *queue) flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	limit := q.now().Add(-parkedLimit)
	for _, parked := range q.parked {
		for _, c := range slices.Backward(parked) {
			if c.since.Before(limit) {
				q.unplace(c)
				q.wake(c, waitedTooLong)
			}
		}
	}
}

// wait returns how long there is nothing to try if no event arrives.
func (q *queue) wait() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case len(q.active)+len(q.backoff) > 0:
		return 0
	case len(q.failing) == 0:
		return time.Hour
	}
	return q.failing[0].until.Sub(q.now())
}

// told returns the refusal to report for a pod: the last one of its class. It returns nil if the pod no longer waits.
func (q *queue) told(it *item) (*cluster.Pod, *refusal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pods[it.pod.UID] != it || it.pos < 0 {
		return nil, nil
	}
	return it.pod, it.class.refusal
}

// gate records whether a pod has scheduling gates.
func (q *queue) gate(uid types.UID, gated bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if gated {
		q.gated[uid] = true
	} else {
		delete(q.gated, uid)
	}
}
