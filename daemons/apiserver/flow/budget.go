package flow

import (
	"context"
	"slices"
	"sync"

	"clusterctl/daemons/api"
)

// Budget shares out something of which requests need more or less, as the memory for what is in their bodies. It follows priority
// levels: those that have had least of it for their shares come first, and within a level flows take turns, so that no flow
// delays other ones by more than the requests that are being worked on. A level that holds nothing gets a part of a reserve even
// when others hold all the rest.
type Budget struct {
	mu            sync.Mutex
	free, reserve int64
	clock         float64 // what the level that was served last had had for its shares
	levels        map[string]*line
}

// NewBudget returns a budget of which requests can have capacity together, besides the reserve.
func NewBudget(capacity, reserve int64) *Budget {
	return &Budget{free: capacity, reserve: reserve, levels: map[string]*line{}}
}

// line is the requests of one level.
type line struct {
	name  string
	share float64
	had   float64 // how much it was given, for its shares
	holds int64
	flows []*turns // those that wait, in turn
}

type turns struct {
	flow uint64
	list []*bidder
}

type bidder struct {
	n       int64
	granted chan *Share // buffered
}

// Share is a part of the budget that a request has.
type Share struct {
	b       *Budget
	line    *line
	n       int64
	reserve bool
}

// exemptShare is the share of levels that never wait for others.
const exemptShare = 1e6

// Acquire waits until a request can have n of the budget. Requests of no schema are one flow.
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
		l.had = max(l.had, b.clock) // it saves nothing up
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
	case got := <-w.granted: // at the same moment
		b.release(got)
	default:
		l.remove(w)
		b.tidy(l)
	}
	b.dispatch() // others may have waited for it
	return nil, ctx.Err()
}

// Release gives a share back.
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

// tidy drops a level that has nothing. What it had counts no more once others have been given more.
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

// next takes the request whose turn it is out of the line. Its flow is the last from then on.
func (l *line) next() *bidder {
	q := l.flows[0]
	w := q.list[0]
	l.flows, q.list = l.flows[1:], q.list[1:]
	if len(q.list) > 0 {
		l.flows = append(l.flows, q)
	}
	return w
}

// dispatch gives what is free to those that wait. One for which there is not enough is waited for, by others that come after it
// as well: else small requests would keep a large one waiting for ever.
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
