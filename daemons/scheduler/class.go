package scheduler

import (
	"container/heap"
	"time"

	"clusterctl/daemons/scheduler/cluster"
	"clusterctl/daemons/scheduler/plugin"
)

// class holds equal pods that wait.
type class struct {
	key          string
	priority     int32
	oldest       time.Time // when its oldest member was added
	sample       *cluster.Pod
	members      []*item // members not being scheduled, the oldest first; nil where a member has left
	head         int     // all entries before it are nil
	waitingCount int
	inFlight     int // number of members being scheduled

	part          queuePart
	index         int // position in its heap or list of parked classes
	refusals      int // consecutive refusals
	retryAt       time.Time
	parkedAt      time.Time // when it was parked
	helpfulEvents plugin.EventKind
	refusal       *refusal
	verdicts      verdicts
}

// relocate moves a class to the right part of the queue after a member has left.
func (q *queue) relocate(c *class) {
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
	if c.waitingCount > 0 {
		c.oldest = c.members[c.head].added
		if c.part == partActive {
			heap.Fix(&q.active, c.index)
		}
		return
	}
	c.members, c.head = nil, 0
	q.removeFromPart(c)
	if c.inFlight == 0 {
		delete(q.classes, c.key)
	}
}

func (q *queue) removeFromPart(c *class) {
	switch c.part {
	case partActive:
		heap.Remove(&q.active, c.index)
	case partBackoff:
		heap.Remove(&q.backoff, c.index)
	case partFailing:
		heap.Remove(&q.failing, c.index)
	case partParked:
		parked := q.parked[c.helpfulEvents]
		last := len(parked) - 1
		parked[c.index], parked[last].index = parked[last], c.index
		parked[last] = nil
		q.parked[c.helpfulEvents] = parked[:last]
	}
	c.part = partNone
}

// park makes a class wait for events that may help it.
func (q *queue) park(c *class) {
	c.part, c.index = partParked, len(q.parked[c.helpfulEvents])
	q.parked[c.helpfulEvents] = append(q.parked[c.helpfulEvents], c)
}

// classHeap orders classes by priority, and those of equal priority by their oldest member. For back-off, it orders
// them by the end of their back-off.
type classHeap []*class

func (h classHeap) Len() int { return len(h) }
func (h classHeap) Less(i, j int) bool {
	if h[i].part == partBackoff || h[i].part == partFailing {
		return h[i].retryAt.Before(h[j].retryAt)
	}
	if h[i].priority != h[j].priority {
		return h[i].priority > h[j].priority
	}
	return h[i].oldest.Before(h[j].oldest)
}
func (h classHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }

// Push implements heap.Interface.
func (h *classHeap) Push(x any) { c := x.(*class); c.index = len(*h); *h = append(*h, c) }

// Pop implements heap.Interface.
func (h *classHeap) Pop() any {
	old := *h
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return c
}

// lengths returns the number of pods in each part of the queue, for metrics.
func (q *queue) lengths() (active, backoff, parked, gated int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.classes {
		switch c.part {
		case partActive:
			active += c.waitingCount
		case partBackoff, partFailing:
			backoff += c.waitingCount
		case partParked:
			parked += c.waitingCount
		}
	}
	return active, backoff, parked, len(q.gated)
}
