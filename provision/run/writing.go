package run

import "sync"

// writing guards the state, which machines and objects are recorded in at the same time.
var writing sync.Mutex

// saves combines writes of the state. A write takes longer the larger the state is. Changes that come during a write
// are written together by the next one: with a thousand machines there are some dozens of writes.
type saves struct {
	turn sync.Mutex // held during a write
	mu   sync.Mutex
	next *save // the next write, which has not begun
}

type save struct {
	done chan struct{}
	err  error
}

// write changes the state, and returns when the change is on disk.
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

// shares is the number of writes over which a run spreads changes that may wait. So the total cost of writing grows
// linearly with the number of machines, not quadratically.
const shares = 16

// owe makes a change of the state that an interrupted run would find out again. The change is written with the next
// write, by writeOwed, or when more than a share of the machines is unwritten. With few machines it is written at once.
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

// writeOwed writes the changes that owe has left unwritten.
func (p *Prepared) writeOwed() error {
	writing.Lock()
	owed := p.owed
	writing.Unlock()
	if owed == 0 {
		return nil
	}
	return p.write(func() {})
}

// join returns when a write that began after the call has ended.
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
