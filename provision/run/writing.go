package run

import "sync"

// writing guards a state that machines and objects are written down in at the same time.
var writing sync.Mutex

// saves are writes of the state. A write takes as long as the state is large, so that what comes while one is under way
// is written together by the next: with a thousand machines there are some dozens of writes.
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
		p.owed = 0
		return p.engine.Store.Write(p.State)
	})
}

// shares is into how many writes a run divides what may wait: what writing costs in all grows with the machines, not
// with their square.
const shares = 16

// owe changes the state by what a run that is cut off finds out again. It is written with what comes next, at the
// latest when a share of the machines is owed, or by writeOwed. With few machines it is written at once.
func (p *Prepared) owe(change func()) error {
	writing.Lock()
	change()
	p.owed++
	due := p.owed > len(p.State.Machines)/shares
	writing.Unlock()
	if !due {
		return nil
	}
	return p.write(func() {})
}

// writeOwed writes what is owed.
func (p *Prepared) writeOwed() error {
	writing.Lock()
	owed := p.owed
	writing.Unlock()
	if owed == 0 {
		return nil
	}
	return p.write(func() {})
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
