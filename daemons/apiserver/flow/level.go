package flow

import (
	"hash/maphash"
	"maps"
	"math"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"clusterctl/daemons/api"
)

// level is a priority level: its seats and its waiting requests. The controller's mu guards all fields but immutable
// ones.
type level struct {
	name     string
	uid      string
	isExempt bool

	nominal  int // the level's own seats
	minSeats int // those of them that it never lends
	maxSeats int // all seats that it may use, with borrowed ones
	used     int

	queuing *flowcontrolv1.QueuingConfiguration // nil if requests do not wait
	// only queues that have waiting requests, or had some recently, because a level may be configured with millions
	queues      map[int]*queue
	waiting     int
	virtualTime float64 // virtual time: of the last started request
}

// queue holds the waiting requests of the flows that were dealt this queue, in order.
type queue struct {
	index        int
	waiters      []*waiter
	seats        int     // total of the waiting requests
	virtualStart float64 // virtual time at which the next request's turn comes
}

// waiter is a waiting request.
type waiter struct {
	schema    *Schema
	work      Work
	flow      string // the flow of the request within its schema
	request   *api.Request
	user      string
	arrived   time.Time
	queue     *queue
	granted   chan struct{} // closed when the request may run
	isGranted bool          // whether granted is closed
}

// configure applies a configuration. shares is the sum of all levels' shares.
func (l *level) configure(o *flowcontrolv1.PriorityLevelConfiguration, seats int, shares int32) {
	l.uid, l.isExempt = string(o.UID), o.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt
	l.nominal, l.minSeats, l.maxSeats, l.queuing = 0, 0, math.MaxInt, nil
	limited := o.Spec.Limited
	if l.isExempt || limited == nil {
		return
	}
	own := int32(30)
	if limited.NominalConcurrencyShares != nil {
		own = *limited.NominalConcurrencyShares
	}
	l.nominal = int(math.Ceil(float64(seats) * float64(own) / float64(max(shares, 1))))
	l.minSeats = l.nominal
	if p := limited.LendablePercent; p != nil {
		l.minSeats = l.nominal - int(math.Round(float64(l.nominal)*float64(*p)/100))
	}
	if p := limited.BorrowingLimitPercent; p != nil {
		l.maxSeats = l.nominal + int(math.Round(float64(l.nominal)*float64(*p)/100))
	}
	if limited.LimitResponse.Type == flowcontrolv1.LimitResponseTypeQueue && limited.LimitResponse.Queuing != nil {
		l.queuing = limited.LimitResponse.Queuing
	}
}

// enqueue adds w to the shortest of the queues that its flow was dealt. It returns false if that queue is full.
func (l *level) enqueue(w *waiter, flow uint64) bool {
	if l.queuing == nil {
		return false
	}
	var best *queue
	for _, i := range shuffleShard(flow, int(l.queuing.Queues), int(l.queuing.HandSize)) {
		q := l.queues[i]
		if q == nil {
			q = &queue{index: i}
		}
		if best == nil || q.seats < best.seats || q.seats == best.seats && q.virtualStart < best.virtualStart {
			best = q
		}
	}
	if len(best.waiters) >= int(l.queuing.QueueLengthLimit) {
		return false
	}
	l.storeQueue(best)
	if len(best.waiters) == 0 {
		best.virtualStart = max(best.virtualStart, l.virtualTime) // an idle flow does not save up a claim
	}
	w.queue = best
	best.waiters = append(best.waiters, w)
	best.seats += w.work.Seats
	l.waiting++
	w.schema.tally.waiting.Add(1)
	return true
}

// maxIdleQueues is how many queues without waiting requests are kept, besides one for each waiting request.
const maxIdleQueues = 1024

// storeQueue stores a queue. If there are too many queues, it deletes those without waiting requests, including their
// virtual time.
func (l *level) storeQueue(q *queue) {
	if l.queues[q.index] == q {
		return
	}
	if len(l.queues) >= maxIdleQueues+2*l.waiting {
		maps.DeleteFunc(l.queues, func(_ int, q *queue) bool { return len(q.waiters) == 0 })
	}
	if l.queues == nil {
		l.queues = map[int]*queue{}
	}
	l.queues[q.index] = q
}

// next returns the waiting request whose turn it is: of the queue that was served the least. Lists for which there is
// no memory are skipped, and do not delay requests behind them.
func (l *level) next(bytes int64) *waiter {
	var next *waiter
	for _, q := range l.queues {
		if next == nil || q.virtualStart < next.queue.virtualStart || q.virtualStart == next.queue.virtualStart &&
			q.index < next.queue.index {
			if w := q.firstFitting(bytes); w != nil {
				next = w
			}
		}
	}
	return next
}

// firstFitting returns the first request of the queue that needs at most that many bytes.
func (q *queue) firstFitting(bytes int64) *waiter {
	for _, w := range q.waiters {
		if w.work.Bytes <= bytes {
			return w
		}
	}
	return nil
}

// dequeue removes a request from its queue, because it has its seats.
func (l *level) dequeue(w *waiter) {
	l.virtualTime = max(l.virtualTime, w.queue.virtualStart)
	w.queue.virtualStart += float64(w.work.Seats)
	l.remove(w)
}

func (l *level) remove(w *waiter) {
	q := w.queue
	for i := range q.waiters {
		if q.waiters[i] == w {
			q.waiters = append(q.waiters[:i:i], q.waiters[i+1:]...)
			q.seats -= w.work.Seats
			l.waiting--
			w.schema.tally.waiting.Add(-1)
			return
		}
	}
}

var seed = maphash.MakeSeed()

func flowHash(schema, flow string) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.WriteString(schema) // never fails
	_ = h.WriteByte(0)
	_, _ = h.WriteString(flow)
	return h.Sum64()
}

// shuffleShard selects some of n queues for a flow by its hash. Two flows seldom get the same queues. So a flow that
// fills its queues leaves other flows some of theirs.
func shuffleShard(flow uint64, n, hand int) []int {
	hand = min(hand, n)
	cards := make([]int, 0, hand)
	for i := range hand {
		card := int(flow % uint64(n-i))
		flow = flow / uint64(n-i)
		// card is an index into the queues that are left.
		at := 0
		for ; at < len(cards) && card >= cards[at]; at++ {
			card++
		}
		cards = append(cards, 0)
		copy(cards[at+1:], cards[at:])
		cards[at] = card
	}
	return cards
}
