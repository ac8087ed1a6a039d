package upkeep

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// CheckStore returns nil if the store answered when it was last checked.
func (s *Upkeep) CheckStore() error {
	if err := s.storeError.Load(); err != nil {
		return *err
	}
	return errors.New("not looked at yet")
}

// recordStoreAnswer records that the store did an operation that needs a majority of its members.
func (s *Upkeep) recordStoreAnswer(at time.Time) {
	s.storeError.Store(new(error))
	s.storeAnsweredAt.Store(&at)
}

// monitorStore checks whether the store answers, whenever it has not been used successfully for a few seconds.
func (s *Upkeep) monitorStore(ctx context.Context) error {
	// advertise writes to the store at this interval and records its success
	const silence = leaseKeyInterval + leaseKeyInterval/10
	for pause := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		if answeredAt := s.storeAnsweredAt.Load(); answeredAt != nil && time.Since(*answeredAt) < silence {
			pause = silence - time.Since(*answeredAt)
			continue
		}
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := s.config.Raw.CheckHealth(call)
		cancel()
		if pause = silence; err != nil {
			s.storeError.Store(&err)
			pause = 500 * time.Millisecond
		} else {
			s.recordStoreAnswer(time.Now())
		}
	}
}

// maxReportedUnreadable is how many objects of a resource the health check names.
const maxReportedUnreadable = 10

// CheckStoredReadable is a health check that fails and names the objects that cannot be read. It does not affect
// readiness, because the other servers cannot read them either.
func (s *Upkeep) CheckStoredReadable() error {
	var found []error
	for _, r := range s.config.Cache.Resources() {
		if some := r.ReadErrors("", maxReportedUnreadable); len(some) > 0 {
			n, _ := r.CountUnreadable()
			found = append(found, fmt.Errorf("%d %s cannot be read: %w", n, r.Kind.GR(), errors.Join(some...)))
		}
	}
	return errors.Join(found...)
}
