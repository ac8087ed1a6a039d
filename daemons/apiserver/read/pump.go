package read

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

	mu            sync.Mutex
	groups        []*watchGroup // unordered
	readyWatchers []*watcher    // watches with pending work, besides those of ready groups
	spare         []*watcher
	isSignalled   bool // whether wake holds a signal
	watcherCount  int
	stop          chan struct{}
	done          chan struct{}

	wake chan struct{} // has a capacity of one

	last batch // used only by the goroutine
}

// watchGroup holds the watches of a connection that read the same log. One notifier wakes all of them. So waking a
// thousand watches touches a hundred connections, not each watch.
type watchGroup struct {
	notifier *cache.Notifier
	members  []*watcher // unordered
	ready    bool
}

// sink receives the bytes of a watch. It is an HTTP/2 stream, or a connection on which writing blocks.
type sink interface {
	// TryWrite takes as many bytes as there is room for. If it does not take all of them, onRoom is called when there
	// may be room again.
	TryWrite(data []byte, onRoom func()) (int, error)
}

// pumpOf returns the pump of a watch's connection. A watch that may have to wait gets a pump of its own: if writing
// blocks, or if a webhook converts the objects.
func pumpOf(w *watcher) (*pump, sink) {
	if stream := h2.StreamOf(w.out); stream != nil && !w.needsConversion() {
		conn := stream.Conn()
		return conn.SharedValue(func() any { return newPump(conn.Flush) }).(*pump), stream
	}
	return newPump(w.flush), blockingSink{w.out, w.control}
}

func newPump(flush func() error) *pump {
	return &pump{flush: flush, wake: make(chan struct{}, 1)}
}

// blockingSink is a sink for connections with one response at a time. Writing blocks until the client reads.
type blockingSink struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// TryWrite implements sink.
func (s blockingSink) TryWrite(data []byte, _ func()) (int, error) {
	_ = s.control.SetWriteDeadline(time.Now().Add(stuckTimeout)) // not every connection has deadlines
	return s.w.Write(data)
}

// join adds a watch. The pump's goroutine runs while there are watches.
func (p *pump) join(w *watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watcherCount++; p.watcherCount == 1 {
		before := p.done
		p.stop, p.done = make(chan struct{}), make(chan struct{})
		go p.run(before, p.stop, p.done)
	}
	for _, g := range p.groups {
		if g.notifier.BelongsTo(w.cursor) {
			w.group = g
		}
	}
	if w.group == nil {
		g := new(watchGroup)
		g.notifier = w.cursor.NewNotifier(func() { p.queueGroup(g) })
		w.group, p.groups = g, append(p.groups, g)
	}
	w.index = len(w.group.members)
	w.group.members = append(w.group.members, w)
}

func (p *pump) leave(w *watcher) {
	p.mu.Lock()
	g := w.group
	last := len(g.members) - 1
	g.members[last].index = w.index
	g.members[w.index], g.members[last] = g.members[last], nil
	if g.members = g.members[:last]; last == 0 {
		p.groups = slices.DeleteFunc(p.groups, func(other *watchGroup) bool { return other == g })
	}
	p.watcherCount--
	alone, done := p.watcherCount == 0, p.done
	if alone {
		close(p.stop)
	}
	p.mu.Unlock()
	if alone {
		<-done
	}
}

// queue queues a watch, and wakes the goroutine.
func (p *pump) queue(w *watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !w.isQueued {
		w.isQueued = true
		p.readyWatchers = append(p.readyWatchers, w)
	}
	p.signal()
}

// queueGroup queues all watches of a group, and wakes the goroutine.
func (p *pump) queueGroup(g *watchGroup) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g.ready = true
	p.signal()
}

// signal wakes the goroutine. The caller holds p.mu.
func (p *pump) signal() {
	if p.isSignalled {
		return
	}
	p.isSignalled = true
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
		p.advanceAll()
	}
}

// advanceAll advances all queued watches, then flushes the connection.
func (p *pump) advanceAll() {
	p.mu.Lock()
	ready := p.readyWatchers
	p.readyWatchers, p.spare, p.isSignalled = p.spare[:0], nil, false
	for _, g := range p.groups {
		if !g.ready {
			continue
		}
		g.ready = false
		for _, w := range g.members {
			if !w.isQueued {
				ready = append(ready, w)
			}
		}
	}
	for _, w := range ready {
		w.isQueued = false
	}
	p.mu.Unlock()
	for _, w := range ready {
		w.sendPending(&p.last)
	}
	p.last.release()
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
