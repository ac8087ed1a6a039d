package run

import "sync"

// writing guards a state that machines and objects are written down in at the same time.
var writing sync.Mutex

// saves are writes of the state. A write takes as long as the state is large, so that what comes while one is under way is
// written together by the next: with a thousand machines there are some dozens of writes.
type saves struct {
	turn sync.Mutex // whose write is under way
	mu   sync.Mutex
	next *save // that has not begun yet
}

type save struct {
	done chan struct{}
	err  error
}

// write changes the state, and returns when that is on the disk.
func (p *Prepared) write(change func()) error {
	writing.Lock()
	change()
	writing.Unlock()
	return p.saves.join(func() error {
		writing.Lock()
		defer writing.Unlock()
		return p.engine.Store.Write(p.State)
	})
}

// join returns when a write has ended that began after the call.
func (s *saves) join(write func() error) error {
	s.mu.Lock()
	own := s.next
	if own != nil {
		s.mu.Unlock()
		<-own.done
		return own.err
	}
	own = &save{done: make(chan struct{})}
	s.next = own
	s.mu.Unlock()
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	s.next = nil
	s.mu.Unlock()
	own.err = write()
	close(own.done)
	return own.err
}
