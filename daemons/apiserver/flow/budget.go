package flow

import (
	"context"
	"slices"
	"sync"

	"clusterctl/daemons/api"
)

// Budget shares a limited amount among requests, for example the memory for request bodies. It follows priority levels.
// The level that has received the least in proportion to its shares is served first. Within a level, flows are served
// in turn. So one flow delays another by at most the requests in progress. A level that holds nothing can use a reserve
// even when other levels hold the rest.
type Budget struct {
	mu            sync.Mutex
	free, reserve int64
	virtualTime   float64 // virtual time: the highest value of had of a level when it was served
	levels        map[string]*levelQueue
}

// NewBudget returns a budget of capacity, plus a reserve for levels that hold nothing.
func NewBudget(capacity, reserve int64) *Budget {
	return &Budget{free: capacity, reserve: reserve, levels: map[string]*levelQueue{}}
}

// levelQueue holds the requests of one priority level.
type levelQueue struct {
	name    string
	share   float64
	granted float64 // the amount granted so far, divided by share
	held    int64
	flows   []*flowQueue // flows with waiting requests; the first is served next
}

type flowQueue struct {
	flow uint64
	list []*shareWaiter
}

type shareWaiter struct {
	amount  int64
	granted chan *Share // buffered
}

// Share is a part of the budget that a request holds until Release.
type Share struct {
	b           *Budget
	level       *levelQueue
	amount      int64
	fromReserve bool
}

// exemptShare is the share of exempt levels. It is so large that they are always served first.
const exemptShare = 1e6

// Acquire waits until n of the budget is available to a request, or until ctx ends. It returns the error of ctx in that
// case. All requests without a FlowSchema form one flow.
func (b *Budget) Acquire(ctx context.Context, s *Schema, u *api.User, r *api.Request, n int64) (*Share, error) {
	level, share, flow := "", 1.0, uint64(0)
	if s != nil {
		level, share, flow = s.level.name, s.share, flowHash(s.Name, s.flowOf(u, r))
	}
	b.mu.Lock()
	l := b.levels[level]
	if l == nil {
		l = &levelQueue{name: level}
		b.levels[level] = l
	}
	if l.share = share; l.isIdle() {
		l.granted = max(l.granted, b.virtualTime) // an idle level does not save up a claim
	}
	w := &shareWaiter{n, make(chan *Share, 1)}
	l.enqueue(flow, w)
	b.dispatch()
	b.mu.Unlock()
	select {
	case got := <-w.granted:
		return got, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case got := <-w.granted: // granted at the moment ctx ended
		b.release(got)
	default:
		l.remove(w)
		b.removeIfIdle(l)
	}
	b.dispatch() // requests behind w may fit now
	return nil, ctx.Err()
}

// Release returns the share to the budget. Call it exactly once.
func (s *Share) Release() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.b.release(s)
	s.b.dispatch()
}

func (b *Budget) release(s *Share) {
	s.level.held -= s.amount
	if s.fromReserve {
		b.reserve += s.amount
	} else {
		b.free += s.amount
	}
	b.removeIfIdle(s.level)
}

// removeIfIdle deletes an idle level. It keeps a level that is ahead of the clock, because the level's past usage still
// matters.
func (b *Budget) removeIfIdle(l *levelQueue) {
	if l.isIdle() && l.granted <= b.virtualTime {
		delete(b.levels, l.name)
	}
}

func (l *levelQueue) isIdle() bool { return l.held == 0 && len(l.flows) == 0 }

func (l *levelQueue) enqueue(flow uint64, w *shareWaiter) {
	i := slices.IndexFunc(l.flows, func(q *flowQueue) bool { return q.flow == flow })
	if i < 0 {
		l.flows = append(l.flows, &flowQueue{flow, []*shareWaiter{w}})
		return
	}
	l.flows[i].list = append(l.flows[i].list, w)
}

func (l *levelQueue) remove(w *shareWaiter) {
	for i, q := range l.flows {
		if at := slices.Index(q.list, w); at >= 0 {
			if q.list = slices.Delete(q.list, at, at+1); len(q.list) == 0 {
				l.flows = slices.Delete(l.flows, i, i+1)
			}
			return
		}
	}
}

// next removes the first request of the first flow, and moves that flow to the end of the line.
func (l *levelQueue) next() *shareWaiter {
	q := l.flows[0]
	w := q.list[0]
	l.flows, q.list = l.flows[1:], q.list[1:]
	if len(q.list) > 0 {
		l.flows = append(l.flows, q)
	}
	return w
}

// dispatch grants the free amount to waiting requests. If the next request does not fit, later requests wait as well.
// Otherwise small requests could delay a large one forever.
func (b *Budget) dispatch() {
	for {
		var waiting []*levelQueue
		for _, l := range b.levels {
			if len(l.flows) > 0 {
				waiting = append(waiting, l)
			}
		}
		if len(waiting) == 0 {
			return
		}
		slices.SortFunc(waiting, func(x, y *levelQueue) int {
			switch {
			case x.granted < y.granted || x.granted == y.granted && x.name < y.name:
				return -1
			default:
				return 1
			}
		})
		if first := waiting[0]; first.flows[0].list[0].amount <= b.free {
			b.grantNext(first, false)
			continue
		}
		some := false
		for _, l := range waiting {
			if l.held == 0 && l.flows[0].list[0].amount <= b.reserve {
				b.grantNext(l, true)
				some = true
			}
		}
		if !some {
			return
		}
	}
}

func (b *Budget) grantNext(l *levelQueue, reserve bool) {
	w := l.next()
	if reserve {
		b.reserve -= w.amount
	} else {
		b.free -= w.amount
	}
	b.virtualTime = max(b.virtualTime, l.granted)
	l.granted += float64(w.amount) / max(l.share, 1)
	l.held += w.amount
	w.granted <- &Share{b, l, w.amount, reserve}
}
