package gitops

import (
	"slices"
	"sync"
	"time"
)

// hookPatience is how long a request may take for its body before another request can take its place.
const hookPatience = time.Second

// hookReads are the requests of webhooks whose bodies are read, at most maxHooks. When all places are taken, a new
// request takes the place of the oldest one, if that has had hookPatience. Bodies of webhooks arrive at once, so that
// clients that send bodies slowly cannot keep others out.
type hookReads struct {
	mu  sync.Mutex
	all []*hookRead // in the order of their start
}

// hookRead is a request whose body is read.
type hookRead struct {
	began time.Time
	stop  func() error // ends the read; an error means that it cannot be ended
}

// start adds a request. It returns false if no place is left.
func (h *hookReads) start(now time.Time, stop func() error) (*hookRead, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.all) >= maxHooks {
		if oldest := h.all[0]; now.Sub(oldest.began) < hookPatience || oldest.stop() != nil {
			return nil, false
		}
		h.all = slices.Delete(h.all, 0, 1)
	}
	r := &hookRead{began: now, stop: stop}
	h.all = append(h.all, r)
	return r, true
}

// end removes a request. Its stop is not called any more.
func (h *hookReads) end(r *hookRead) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.all, r); i >= 0 {
		h.all = slices.Delete(h.all, i, i+1)
	}
}
