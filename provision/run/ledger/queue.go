package ledger

import "sync"

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
