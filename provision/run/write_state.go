package run

import "sync"

// stateMu guards the state, which machines and objects are recorded in at the same time.
var stateMu sync.Mutex

// saveQueue combines writes of the state. A write takes longer the larger the state is. Changes that come during a
// write are written together by the next one: with a thousand machines there are some dozens of writes.
type saveQueue struct {
	writing sync.Mutex // held during a write
	mu      sync.Mutex
	next    *save // the next write, which has not begun
}

type save struct {
	done chan struct{}
	err  error
}

// writeState changes the state, and returns when the change is on disk.
func (p *Prepared) writeState(change func()) error {
	stateMu.Lock()
	change()
	stateMu.Unlock()
	return p.saveQueue.join(func() error {
		stateMu.Lock()
		defer stateMu.Unlock()
		p.unwritten = 0
		return p.engine.Store.Write(p.State)
	})
}

// deferredShares is the number of writes over which a run spreads changes that may wait. So the total cost of writing
// grows linearly with the number of machines, not quadratically.
const deferredShares = 16

// deferWrite makes a change of the state that an interrupted run would find out again. The change is written with the
// next write, by flushDeferred, or when more than a share of the machines is unwritten. With few machines it is written
// at once.
func (p *Prepared) deferWrite(change func()) error {
	stateMu.Lock()
	change()
	p.unwritten++
	due := p.unwritten > len(p.State.Machines)/deferredShares
	stateMu.Unlock()
	if !due {
		return nil
	}
	return p.writeState(func() {})
}

// flushDeferred writes the changes that owe has left unwritten.
func (p *Prepared) flushDeferred() error {
	stateMu.Lock()
	owed := p.unwritten
	stateMu.Unlock()
	if owed == 0 {
		return nil
	}
	return p.writeState(func() {})
}

// join returns when a write that began after the call has ended.
func (s *saveQueue) join(write func() error) error {
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
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	s.next = nil
	s.mu.Unlock()
	own.err = write()
	close(own.done)
	return own.err
}
