package apiserver

import (
	"context"
	"errors"
	"time"
)

// storeWell returns nil if the store answered when it was last checked.
func (s *Server) storeWell() error {
	if err := s.observed.store.Load(); err != nil {
		return *err
	}
	return errors.New("not looked at yet")
}

// storeAnswered records that the store did an operation that needs a majority of its members.
func (o *observed) storeAnswered(at time.Time) {
	o.store.Store(new(error))
	o.storeHeard.Store(&at)
}

// watchStore checks whether the store answers, whenever it has not been used successfully for a few seconds.
func (s *Server) watchStore(ctx context.Context) error {
	// advertise writes to the store at this interval and records its success
	const silence = presenceEvery + presenceEvery/10
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
