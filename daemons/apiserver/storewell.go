package apiserver

import (
	"context"
	"errors"
	"time"
)

// storeWell says whether the store answered when last looked at.
func (s *Server) storeWell() error {
	if err := s.observed.store.Load(); err != nil {
		return *err
	}
	return errors.New("not looked at yet")
}

// storeAnswered notes that the store did what needs a majority of its members.
func (o *observed) storeAnswered(at time.Time) {
	o.store.Store(new(error))
	o.storeHeard.Store(&at)
}

// watchStore looks whether the store answers, whenever nothing was heard of it for a few seconds.
func (s *Server) watchStore(ctx context.Context) error {
	const silence = presenceEvery + presenceEvery/10 // what says that this server is there tells it, too
	for pause := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		if heard := s.observed.storeHeard.Load(); heard != nil && time.Since(*heard) < silence {
			pause = silence - time.Since(*heard)
			continue
		}
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := s.o.Store.Answers(call)
		cancel()
		if pause = silence; err != nil {
			s.observed.store.Store(&err)
			pause = 500 * time.Millisecond
		} else {
			s.observed.storeAnswered(time.Now())
		}
	}
}
