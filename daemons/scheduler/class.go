package scheduler

import (
	"container/heap"
	"time"

	"clusterctl/daemons/scheduler/cluster"
	"clusterctl/daemons/scheduler/plugin"
)

// class is equal pods that wait.
type class struct {
	key      string
	priority int32
	oldest   time.Time // member's
	sample   *cluster.Pod
	members  []*item // that are not being placed, the oldest first; nil where one has left
	head     int     // no member is before it
	live     int
	flying   int // being placed

	at       where
	index    int // in its heap, or among the parked ones
	refusals int // in a row
	until    time.Time
	since    time.Time // parked
	wakes    plugin.Event
	refusal  *refusal
	known    verdicts
}

// tidy keeps a class in the part of the queue where it belongs after a member has left.
func (q *queue) tidy(c *class) {
	for c.head < len(c.members) && c.members[c.head] == nil {
		c.head++
	}
	if c.head > 64 && c.head > len(c.members)/2 {
		c.members = append([]*item(nil), c.members[c.head:]...)
		c.head = 0
		for i, it := range c.members {
			if it != nil {
				it.pos = i
			}
		}
	}
	if c.live > 0 {
		c.oldest = c.members[c.head].added
		if c.at == inActive {
			heap.Fix(&q.active, c.index)
		}
		return
	}
	c.members, c.head = nil, 0
	q.unplace(c)
	if c.flying == 0 {
		delete(q.classes, c.key)
	}
}

func (q *queue) unplace(c *class) {
	switch c.at {
	case inActive:
		heap.Remove(&q.active, c.index)
	case inBackoff:
		heap.Remove(&q.backoff, c.index)
	case inFailing:
		heap.Remove(&q.failing, c.index)
	case inParked:
		parked := q.parked[c.wakes]
		last := len(parked) - 1
		parked[c.index], parked[last].index = parked[last], c.index
		parked[last] = nil
		q.parked[c.wakes] = parked[:last]
	}
	c.at = idle
}

// park has a class wait for the events that may help it.
func (q *queue) park(c *class) {
	c.at, c.index = inParked, len(q.parked[c.wakes])
	q.parked[c.wakes] = append(q.parked[c.wakes], c)
}

// classHeap has the highest priority first and of equals the one whose oldest member waits longest; or, by time, the
// earliest end of back-off.
type classHeap []*class

func (h classHeap) Len() int { return len(h) }
func (h classHeap) Less(i, j int) bool {
	if h[i].at == inBackoff || h[i].at == inFailing {
		return h[i].until.Before(h[j].until)
	}
	if h[i].priority != h[j].priority {
		return h[i].priority > h[j].priority
	}
	return h[i].oldest.Before(h[j].oldest)
}
func (h classHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }

// Push and Pop are the heap's.
func (h *classHeap) Push(x any) { c := x.(*class); c.index = len(*h); *h = append(*h, c) }

// Pop takes the last.
func (h *classHeap) Pop() any {
	old := *h
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return c
}

// lengths are how many pods are in each part, for metrics.
func (q *queue) lengths() (active, backoff, parked, gated int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.classes {
		switch c.at {
		case inActive:
			active += c.live
		case inBackoff, inFailing:
			backoff += c.live
		case inParked:
			parked += c.live
		}
	}
	return active, backoff, parked, len(q.gated)
}
