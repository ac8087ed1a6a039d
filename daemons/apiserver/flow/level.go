package flow

import (
	"hash/maphash"
	"maps"
	"math"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"clusterctl/daemons/api"
)

// level is a priority level: its seats, and who waits for one. Everything in it is
// guarded by the controller's mu, but for what never changes.
type level struct {
	name   string
	uid    string
	exempt bool

	nominal int // seats that are the level's own
	least   int // of these, those that are never lent
	most    int // seats with what it may borrow
	used    int

	queuing *flowcontrolv1.QueuingConfiguration // nil: nobody waits
	// those that somebody waits in, or did a while ago: a level may have millions
	queues  map[int]*queue
	waiting int
	clock   float64 // virtual time: what has been started
}

// queue is who waits, in order, of the flows that were dealt this queue.
type queue struct {
	index   int
	waiters []*waiter
	seats   int     // that its waiters want
	start   float64 // virtual time at which its next waiter's turn is
}

// waiter is a request that waits.
type waiter struct {
	schema  *Schema
	work    Work
	flow    string // of the schema, by which requests are told apart
	request *api.Request
	user    string
	came    time.Time
	queue   *queue
	granted chan struct{} // closed when it may go on
	done    bool          // granted
}

// settle takes in a configuration. shares is the sum of all levels' shares.
func (l *level) settle(o *flowcontrolv1.PriorityLevelConfiguration, seats int, shares int32) {
	l.uid, l.exempt = string(o.UID), o.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt
	l.nominal, l.least, l.most, l.queuing = 0, 0, math.MaxInt, nil
	limited := o.Spec.Limited
	if l.exempt || limited == nil {
		return
	}
	own := int32(30)
	if limited.NominalConcurrencyShares != nil {
		own = *limited.NominalConcurrencyShares
	}
	l.nominal = int(math.Ceil(float64(seats) * float64(own) / float64(max(shares, 1))))
	l.least = l.nominal
	if p := limited.LendablePercent; p != nil {
		l.least = l.nominal - int(math.Round(float64(l.nominal)*float64(*p)/100))
	}
	if p := limited.BorrowingLimitPercent; p != nil {
		l.most = l.nominal + int(math.Round(float64(l.nominal)*float64(*p)/100))
	}
	if limited.LimitResponse.Type == flowcontrolv1.LimitResponseTypeQueue && limited.LimitResponse.Queuing != nil {
		l.queuing = limited.LimitResponse.Queuing
	}
}

// enqueue has w wait in the shortest of the queues that its flow was dealt, false when
// they are full.
func (l *level) enqueue(w *waiter, flow uint64) bool {
	if l.queuing == nil {
		return false
	}
	var best *queue
	for _, i := range deal(flow, int(l.queuing.Queues), int(l.queuing.HandSize)) {
		q := l.queues[i]
		if q == nil {
			q = &queue{index: i}
		}
		if best == nil || q.seats < best.seats || q.seats == best.seats && q.start < best.start {
			best = q
		}
	}
	if len(best.waiters) >= int(l.queuing.QueueLengthLimit) {
		return false
	}
	l.keep(best)
	if len(best.waiters) == 0 {
		best.start = max(best.start, l.clock) // an idle flow saves up nothing
	}
	w.queue = best
	best.waiters = append(best.waiters, w)
	best.seats += w.work.Seats
	l.waiting++
	w.schema.tally.waiting.Add(1)
	return true
}

// restingQueues is how many queues are remembered in which nobody waits, besides one for each waiter.
const restingQueues = 1024

// keep stores a queue. If there are too many queues, it deletes those without waiting requests, including their virtual
// time.
func (l *level) keep(q *queue) {
	if l.queues[q.index] == q {
		return
	}
	if len(l.queues) >= restingQueues+2*l.waiting {
		maps.DeleteFunc(l.queues, func(_ int, q *queue) bool { return len(q.waiters) == 0 })
	}
	if l.queues == nil {
		l.queues = map[int]*queue{}
	}
	l.queues[q.index] = q
}

// next is the waiter whose turn it is: of the queue that has been given least. Lists for
// which there is no memory let others pass, also those behind them in their queue.
func (l *level) next(bytes int64) *waiter {
	var next *waiter
	for _, q := range l.queues {
		if next == nil || q.start < next.queue.start || q.start == next.queue.start && q.index < next.queue.index {
			if w := q.first(bytes); w != nil {
				next = w
			}
		}
	}
	return next
}

// first is who waits longest of those that need no more than so many bytes.
func (q *queue) first(bytes int64) *waiter {
	for _, w := range q.waiters {
		if w.work.Bytes <= bytes {
			return w
		}
	}
	return nil
}

// started takes a waiter out of its queue, since it has its seats.
func (l *level) started(w *waiter) {
	l.clock = max(l.clock, w.queue.start)
	w.queue.start += float64(w.work.Seats)
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

func hash(schema, flow string) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.WriteString(schema) // never fails
	_ = h.WriteByte(0)
	_, _ = h.WriteString(flow)
	return h.Sum64()
}

// deal gives a flow some of n queues, by its hash: two flows rarely have the same ones, so a
// flow that fills its queues leaves others some of theirs.
func deal(flow uint64, n, hand int) []int {
	hand = min(hand, n)
	cards := make([]int, 0, hand)
	for i := range hand {
		card := int(flow % uint64(n-i))
		flow = flow / uint64(n-i)
		// The card is one of those that are left.
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
