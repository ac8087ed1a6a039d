package apiserver

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"clusterctl/daemons/apiserver/cache"
	"clusterctl/daemons/apiserver/h2"
)

// pump sends the events of all watches of one connection. An event for all of them wakes one goroutine, is encoded
// once, and is sent in one piece.
type pump struct {
	flush func() error

	mu      sync.Mutex
	groups  []*group   // unordered
	ready   []*watcher // watches with pending work, besides those of ready groups
	spare   []*watcher
	awake   bool // whether wake holds a signal
	members int
	stop    chan struct{}
	done    chan struct{}

	wake chan struct{} // has a capacity of one

	last batch // used only by the goroutine
}

// group holds the watches of a connection that read the same log. One bell wakes all of them. So waking a thousand
// watches touches a hundred connections, not each watch.
type group struct {
	bell    *cache.Bell
	members []*watcher // unordered
	ready   bool
}

// sink receives the bytes of a watch. It is an HTTP/2 stream, or a connection on which writing blocks.
type sink interface {
	// Offer takes as many bytes as there is room for. If it does not take all of them, onRoom is called when there may
	// be room again.
	Offer(data []byte, onRoom func()) (int, error)
}

// pumpOf returns the pump of a watch's connection. A watch that may have to wait gets a pump of its own: if writing
// blocks, or if a webhook converts the objects.
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

// waiting is a sink for connections with one response at a time. Writing blocks until the client reads.
type waiting struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// Offer implements sink.
func (s waiting) Offer(data []byte, _ func()) (int, error) {
	_ = s.control.SetWriteDeadline(time.Now().Add(stuckAfter)) // not every connection has deadlines
	return s.w.Write(data)
}

// join adds a watch. The pump's goroutine runs while there are watches.
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

// ring queues a watch, and wakes the goroutine.
func (p *pump) ring(w *watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !w.queued {
		w.queued = true
		p.ready = append(p.ready, w)
	}
	p.rouse()
}

// ringGroup queues all watches of a group, and wakes the goroutine.
func (p *pump) ringGroup(g *group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g.ready = true
	p.rouse()
}

// rouse wakes the goroutine. The caller holds p.mu.
func (p *pump) rouse() {
	if p.awake {
		return
	}
	p.awake = true
	p.wake <- struct{}{} // never blocks: awake ensures that wake holds at most one signal
}

// run is the pump's goroutine. It starts after the previous one has ended.
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

// round advances all queued watches, then flushes the connection.
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
