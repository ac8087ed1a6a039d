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
	clock         float64 // virtual time: the highest value of had of a level when it was served
	levels        map[string]*line
}

// NewBudget returns a budget of capacity, plus a reserve for levels that hold nothing.
func NewBudget(capacity, reserve int64) *Budget {
	return &Budget{free: capacity, reserve: reserve, levels: map[string]*line{}}
}

// line holds the requests of one priority level.
type line struct {
	name  string
	share float64
	had   float64 // the amount granted so far, divided by share
	holds int64
	flows []*turns // flows with waiting requests; the first is served next
}

type turns struct {
	flow uint64
	list []*bidder
}

type bidder struct {
	n       int64
	granted chan *Share // buffered
}

// Share is a part of the budget that a request holds until Release.
type Share struct {
	b       *Budget
	line    *line
	n       int64
	reserve bool
}

// exemptShare is the share of exempt levels. It is so large that they are always served first.
const exemptShare = 1e6

// Acquire waits until n of the budget is available to a request, or until ctx ends. It returns the error of ctx in that
// case. All requests without a FlowSchema form one flow.
func (b *Budget) Acquire(ctx context.Context, s *Schema, u *api.User, r *api.Request, n int64) (*Share, error) {
	level, share, flow := "", 1.0, uint64(0)
	if s != nil {
		level, share, flow = s.level.name, s.share, hash(s.Name, s.flowOf(u, r))
	}
	b.mu.Lock()
	l := b.levels[level]
	if l == nil {
		l = &line{name: level}
		b.levels[level] = l
	}
	if l.share = share; l.idle() {
		l.had = max(l.had, b.clock) // an idle level does not save up a claim
	}
	w := &bidder{n, make(chan *Share, 1)}
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
		b.tidy(l)
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
	s.line.holds -= s.n
	if s.reserve {
		b.reserve += s.n
	} else {
		b.free += s.n
	}
	b.tidy(s.line)
}

// tidy deletes an idle level. It keeps a level that is ahead of the clock, because the level's past usage still
// matters.
func (b *Budget) tidy(l *line) {
	if l.idle() && l.had <= b.clock {
		delete(b.levels, l.name)
	}
}

func (l *line) idle() bool { return l.holds == 0 && len(l.flows) == 0 }

func (l *line) enqueue(flow uint64, w *bidder) {
	i := slices.IndexFunc(l.flows, func(q *turns) bool { return q.flow == flow })
	if i < 0 {
		l.flows = append(l.flows, &turns{flow, []*bidder{w}})
		return
	}
	l.flows[i].list = append(l.flows[i].list, w)
}

func (l *line) remove(w *bidder) {
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
func (l *line) next() *bidder {
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
		var waiting []*line
		for _, l := range b.levels {
			if len(l.flows) > 0 {
				waiting = append(waiting, l)
			}
		}
		if len(waiting) == 0 {
			return
		}
		slices.SortFunc(waiting, func(x, y *line) int {
			switch {
			case x.had < y.had || x.had == y.had && x.name < y.name:
				return -1
			default:
				return 1
			}
		})
		if first := waiting[0]; first.flows[0].list[0].n <= b.free {
			b.give(first, false)
			continue
		}
		some := false
		for _, l := range waiting {
			if l.holds == 0 && l.flows[0].list[0].n <= b.reserve {
				b.give(l, true)
				some = true
			}
		}
		if !some {
			return
		}
	}
}

func (b *Budget) give(l *line, reserve bool) {
	w := l.next()
	if reserve {
		b.reserve -= w.n
	} else {
		b.free -= w.n
	}
	b.clock = max(b.clock, l.had)
	l.had += float64(w.n) / max(l.share, 1)
	l.holds += w.n
	w.granted <- &Share{b, l, w.n, reserve}
}
