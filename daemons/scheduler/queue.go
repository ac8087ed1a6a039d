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

// A pod that no event has brought back is tried again all the same.
const parkedLimit = 5 * time.Minute

// queue holds the pods that have no node, by classes of pods between which scheduling makes no difference: when one is
// refused, all are, and an event that may help is looked at once for all of them.
type queue struct {
	now   func() time.Time
	first time.Duration // back-off after the first refusal
	most  time.Duration

	mu      sync.Mutex
	pods    map[types.UID]*item
	classes map[string]*class
	active  classHeap
	backoff classHeap // tried when nobody is active, at the latest when their time has come
	failing classHeap // whose placing failed: they are not tried before
	gated   map[types.UID]bool
	held    map[types.UID]bool              // whose victims are being ended, and whether an event came meanwhile
	parked  [plugin.Everything + 1][]*class // by the events that may help
	ready   chan struct{}

	entered func(part, event string, pods int) // counts those that come into a part of the queue; nil: nobody does
}

type where int

const (
	idle      where = iota // nobody in it waits
	inActive               // some wait for their turn
	inBackoff              // for the time of the next try, or until nobody else is active
	inFailing              // for the time of the next try
	inParked               // for something to change
)

// refusal is what all pods of a class are told.
type refusal struct {
	message string
	plugins []string
}

// item is one pod in the queue.
type item struct {
	pod      *cluster.Pod // as last seen
	class    *class
	pos      int // among the members; -1 while it is being placed
	added    time.Time
	attempts int
	told     bool   // that it was refused, and that is being written
	promised string // status.nominatedNodeName as the API showed it last
}

func newQueue(now func() time.Time, settings profile.Settings) *queue {
	return &queue{
		now: now, first: settings.FirstBackoff, most: settings.MaxBackoff,
		pods: map[types.UID]*item{}, classes: map[string]*class{}, gated: map[types.UID]bool{},
		held:  map[types.UID]bool{},
		ready: make(chan struct{}, 1),
	}
}

// all returns the pods that wait for a node.
func (q *queue) all() []*cluster.Pod {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := make([]*cluster.Pod, 0, len(q.pods))
	for _, it := range q.pods {
		list = append(list, it.pod)
	}
	return list
}

// classKey is the same for pods that may share a refusal. A pod that was promised a node waits for that alone.
func classKey(p *cluster.Pod) string {
	if p.Nominated != "" {
		return string(p.UID)
	}
	return p.Class()
}

// put adds a pod, or takes note of what has changed about it. It returns what the pod is to be told at once: that equal
// ones have been refused, and nothing has changed since.
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
	if p.Nominated == it.promised && it.pod.Nominated != p.Nominated { // ours is newer, and on its way
		newer := *p
		newer.Nominated = it.pod.Nominated
		p = &newer
	} else {
		it.promised = p.Nominated
	}
	if it.class.key == classKey(p) || it.pos < 0 {
		it.pod = p // one that is being placed finds its class when it comes back
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

// join makes an item a member of its class, and says what it is to be told.
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

// leave takes an item out of its class.
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

// drop forgets a pod that is gone, is not to be scheduled or has a node. It reports whether the pod was there.
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

// waits reports whether a pod is to be placed still.
func (q *queue) waits(it *item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pods[it.pod.UID] == it
}

// pop returns the pod whose turn it is.
func (q *queue) pop() (*item, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.due()
	if len(q.active) == 0 {
		if len(q.backoff) == 0 {
			return nil, false
		}
		q.activate(q.backoff[0], popFromBackoff) // back-off makes way for others, and there are none
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

// done forgets a pod that was placed.
func (q *queue) done(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pods[it.pod.UID] == it {
		it.class.refusals = 0
		q.leave(it)
		delete(q.pods, it.pod.UID)
	}
}

// refuse takes back a pod that could not be placed, and with it all of its class: they wait for one of the events. It
// returns whom to tell.
func (q *queue) refuse(it *item, wakes plugin.Event, r *refusal) []*item {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pods[it.pod.UID] != it {
		return nil // gone meanwhile
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
	c.known = verdicts{} // thousands of classes may wait
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

// retry takes back a pod whose placing has failed: it is tried again after a while, and is promised no node any more.
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

// move brings back pods that what happened may help; which looks closer at one of a class.
func (q *queue) move(what plugin.Happened, which func(sample *cluster.Pod, plugins []string) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for wakes, parked := range q.parked {
		if plugin.Event(wakes)&what.Event == 0 {
			continue
		}
		for _, c := range slices.Backward(parked) { // the last takes the place of one that goes
			if which != nil && !which(c.sample, c.refusal.plugins) || q.holds(c) {
				continue
			}
			q.unplace(c)
			q.wake(c, what.Name())
		}
	}
}

// wake puts a class where it is tried again as soon as its back-off is over, or nobody else is active.
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

// count counts pods that come into a part of the queue; those without an event are counted where they come from.
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

// due moves classes whose back-off is over to the active ones.
func (q *queue) due() {
	now := q.now()
	for _, h := range []*classHeap{&q.backoff, &q.failing} {
		for len(*h) > 0 && !now.Before((*h)[0].until) {
			q.activate((*h)[0], backoffComplete)
		}
	}
}

// flush retries pods that have waited for a change for too long.
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

// wait returns how long there is nothing to try, if nothing happens.
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

// told says what a pod is to be told now: the last refusal of its class, nil if it waits no more.
func (q *queue) told(it *item) (*cluster.Pod, *refusal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pods[it.pod.UID] != it || it.pos < 0 {
		return nil, nil
	}
	return it.pod, it.class.refusal
}

// gate notes whether a pod waits for its gates to be opened.
func (q *queue) gate(uid types.UID, gated bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if gated {
		q.gated[uid] = true
	} else {
		delete(q.gated, uid)
	}
}
