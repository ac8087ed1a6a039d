package scheduler

import (
	"container/heap"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/scheduler/plugin"
)

// Bounds of how long a pod that could not be placed waits before the next try.
const (
	firstBackoff = time.Second
	lastBackoff  = 10 * time.Second
	// A pod that no event has brought back is tried again all the same.
	unschedulableLimit = 5 * time.Minute
)

// queue holds the pods that have no node: active ones by priority and age, those that
// wait for their next try, and those that wait for something to change.
type queue struct {
	now func() time.Time

	mu      sync.Mutex
	pods    map[types.UID]*item
	active  activeHeap
	backoff backoffHeap
	moves   int // how often something changed that might help
	ready   chan struct{}
}

type where int

const (
	inFlight where = iota
	inActive
	inBackoff
	inUnschedulable
)

// item is one pod in the queue.
type item struct {
	pod      *plugin.Pod // as last seen; guarded by the queue
	taken    *plugin.Pod // as it was popped
	at       where
	index    int // in its heap
	added    time.Time
	attempts int
	until    time.Time // end of back-off
	parked   time.Time // since when it is unschedulable
	filters  []string  // which filters refused it last
	moves    int       // of the queue, when it was popped
	again    bool      // changed while in flight
}

func newQueue(now func() time.Time) *queue {
	return &queue{now: now, pods: map[types.UID]*item{}, ready: make(chan struct{}, 1)}
}

// put adds a pod, or takes note of what changed about it. A change of the pod itself
// may be what it waited for.
func (q *queue) put(pod *plugin.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.pods[pod.UID]
	if it == nil {
		it = &item{pod: pod, added: q.now()}
		q.pods[pod.UID] = it
		q.activate(it)
		return
	}
	changed := it.pod.Generation != pod.Generation || !maps.Equal(it.pod.Labels, pod.Labels)
	it.pod = pod
	switch {
	case it.at == inActive:
		heap.Fix(&q.active, it.index)
	case it.at == inUnschedulable && changed:
		q.retry(it)
	case it.at == inFlight && changed:
		it.again = true
	}
}

// drop forgets a pod that is gone or has a node.
func (q *queue) drop(uid types.UID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.pods[uid]
	if it == nil {
		return
	}
	q.remove(it)
	delete(q.pods, uid)
}

// pop returns the pod whose turn it is.
func (q *queue) pop() (*item, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.due()
	if len(q.active) == 0 {
		return nil, false
	}
	it := heap.Pop(&q.active).(*item)
	it.at, it.moves, it.again, it.taken = inFlight, q.moves, false, it.pod
	it.attempts++
	return it, true
}

// done forgets a pod that was placed, unless it is another by now.
func (q *queue) done(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pods[it.taken.UID] == it {
		delete(q.pods, it.taken.UID)
	}
}

// park takes back a pod that could not be placed. If something has changed since it was
// looked at, or soon is set, it is tried again after a while; else it waits for a change.
func (q *queue) park(it *item, filters []string, soon bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pods[it.taken.UID] != it {
		return // gone meanwhile
	}
	now := q.now()
	it.filters, it.parked = filters, now
	it.until = now.Add(backoffOf(it.attempts))
	if soon || it.again || it.moves != q.moves {
		q.retry(it)
		return
	}
	it.at = inUnschedulable
}

func backoffOf(attempts int) time.Duration {
	d := firstBackoff
	for i := 1; i < attempts && d < lastBackoff; i++ {
		d *= 2
	}
	return min(d, lastBackoff)
}

// move brings back pods that wait for a change; which says for whom it may matter, nil
// for all.
func (q *queue) move(which func(*item) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.moves++
	for _, it := range q.pods {
		if it.at == inUnschedulable && (which == nil || which(it)) {
			q.retry(it)
		}
	}
}

// retry puts a pod where it is tried again as soon as its back-off is over.
func (q *queue) retry(it *item) {
	if q.now().Before(it.until) {
		it.at = inBackoff
		heap.Push(&q.backoff, it)
		q.signal() // the loop sleeps until the first back-off ends
		return
	}
	q.activate(it)
}

func (q *queue) activate(it *item) {
	it.at = inActive
	heap.Push(&q.active, it)
	q.signal()
}

func (q *queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

func (q *queue) remove(it *item) {
	switch it.at {
	case inActive:
		heap.Remove(&q.active, it.index)
	case inBackoff:
		heap.Remove(&q.backoff, it.index)
	}
}

// due moves pods whose back-off is over to the active ones.
func (q *queue) due() {
	now := q.now()
	for len(q.backoff) > 0 && !now.Before(q.backoff[0].until) {
		it := heap.Pop(&q.backoff).(*item)
		it.at = inActive
		heap.Push(&q.active, it)
	}
}

// flush retries pods that have waited for a change for too long.
func (q *queue) flush() {
	limit := q.now().Add(-unschedulableLimit)
	q.move(func(it *item) bool { return it.parked.Before(limit) })
}

// wait returns how long there is nothing to try, if nothing happens.
func (q *queue) wait() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case len(q.active) > 0:
		return 0
	case len(q.backoff) == 0:
		return time.Hour
	}
	return q.backoff[0].until.Sub(q.now())
}

// lengths are how many pods are in each part, for metrics.
func (q *queue) lengths() (active, backoff, unschedulable int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, it := range q.pods {
		if it.at == inUnschedulable {
			unschedulable++
		}
	}
	return len(q.active), len(q.backoff), unschedulable
}

// activeHeap has the highest priority first, and of equals the one that waits longest.
type activeHeap []*item

func (h activeHeap) Len() int { return len(h) }
func (h activeHeap) Less(i, j int) bool {
	if h[i].pod.Priority != h[j].pod.Priority {
		return h[i].pod.Priority > h[j].pod.Priority
	}
	return h[i].added.Before(h[j].added)
}
func (h activeHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }
func (h *activeHeap) Push(x any)   { it := x.(*item); it.index = len(*h); *h = append(*h, it) }
func (h *activeHeap) Pop() any {
	old := *h
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return it
}

// backoffHeap has the earliest end first.
type backoffHeap []*item

func (h backoffHeap) Len() int           { return len(h) }
func (h backoffHeap) Less(i, j int) bool { return h[i].until.Before(h[j].until) }
func (h backoffHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }
func (h *backoffHeap) Push(x any)        { it := x.(*item); it.index = len(*h); *h = append(*h, it) }
func (h *backoffHeap) Pop() any {
	old := *h
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return it
}
