package apiserver

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/h2"
)

// pump sends what the watches of one connection have to say. An event that concerns all of them wakes one
// goroutine, is encoded once, and goes out in one piece.
type pump struct {
	flush func() error

	mu      sync.Mutex
	groups  []*group   // in no order
	ready   []*watcher // those that have something to look at, besides the groups that have
	spare   []*watcher
	awake   bool // whether the goroutine has been woken and not yet looked
	members int
	stop    chan struct{}
	done    chan struct{}

	wake chan struct{} // holds one

	last batch // belongs to the goroutine
}

// group is the watches of a connection that read one log. They hear of it together: to wake a thousand
// watches touches a hundred connections, not each of the watches.
type group struct {
	bell    *cache.Bell
	members []*watcher // in no order
	ready   bool
}

// sink is where a watch's bytes go: onto a stream of HTTP/2, or by waiting.
type sink interface {
	// Offer takes as much as there is room for. When that is not everything, onRoom is called once there may be more.
	Offer(data []byte, onRoom func()) (int, error)
}

// pumpOf returns the pump of a watch's connection. What may have to wait, for the connection or for a webhook that
// converts, has one of its own.
func pumpOf(w *watcher) (*pump, sink) {
	if stream := h2.Of(w.to); stream != nil && !w.converts() {
		conn := stream.Conn()
		return conn.Share(func() any { return newPump(conn.Flush) }).(*pump), stream
	}
	return newPump(w.flush), waiting{w.to, w.control}
}

func newPump(flush func() error) *pump {
	return &pump{flush: flush, wake: make(chan struct{}, 1)}
}

// waiting is a connection that has one answer at a time: writing waits for the client.
type waiting struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// Offer implements sink.
func (s waiting) Offer(data []byte, _ func()) (int, error) {
	_ = s.control.SetWriteDeadline(time.Now().Add(stuckAfter)) // not every connection has deadlines
	return s.w.Write(data)
}

// join adds a watch; the goroutine runs while there are any.
func (p *pump) join(w *watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.members++; p.members == 1 {
		before := p.done
		p.stop, p.done = make(chan struct{}), make(chan struct{})
		go p.run(before, p.stop, p.done)
	}
	for _, g := range p.groups {
		if g.bell.Concerns(w.cursor) {
			w.group = g
		}
	}
	if w.group == nil {
		g := new(group)
		g.bell = w.cursor.Bell(func() { p.ringGroup(g) })
		w.group, p.groups = g, append(p.groups, g)
	}
	w.place = len(w.group.members)
	w.group.members = append(w.group.members, w)
}

func (p *pump) leave(w *watcher) {
	p.mu.Lock()
	g := w.group
	last := len(g.members) - 1
	g.members[last].place = w.place
	g.members[w.place], g.members[last] = g.members[last], nil
	if g.members = g.members[:last]; last == 0 {
		p.groups = slices.DeleteFunc(p.groups, func(other *group) bool { return other == g })
	}
	p.members--
	alone, done := p.members == 0, p.done
	if alone {
		close(p.stop)
	}
	p.mu.Unlock()
	if alone {
		<-done
	}
}

// ring has a watch looked after.
func (p *pump) ring(w *watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !w.queued {
		w.queued = true
		p.ready = append(p.ready, w)
	}
	p.rouse()
}

// ringGroup has all of a group looked after.
func (p *pump) ringGroup(g *group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g.ready = true
	p.rouse()
}

// rouse wakes the goroutine. The lock is held.
func (p *pump) rouse() {
	if p.awake {
		return
	}
	p.awake = true
	p.wake <- struct{}{} // has room: this is the only one until the goroutine has looked
}

// run is the goroutine, after the one before has ended.
func (p *pump) run(before, stop, done chan struct{}) {
	defer close(done)
	if before != nil {
		<-before
	}
	for {
		select {
		case <-stop:
			return
		case <-p.wake:
		}
		p.round()
	}
}

// round looks after all watches that are ready, then sends.
func (p *pump) round() {
	p.mu.Lock()
	ready := p.ready
	p.ready, p.spare, p.awake = p.spare[:0], nil, false
	for _, g := range p.groups {
		if !g.ready {
			continue
		}
		g.ready = false
		for _, w := range g.members {
			if !w.queued {
				ready = append(ready, w)
			}
		}
	}
	for _, w := range ready {
		w.queued = false
	}
	p.mu.Unlock()
	for _, w := range ready {
		w.advance(&p.last)
	}
	p.last.rest()
	if err := p.flush(); err != nil {
		for _, w := range ready {
			w.finish()
		}
	}
	clear(ready)
	p.mu.Lock()
	p.spare = ready[:0]
	p.mu.Unlock()
}
