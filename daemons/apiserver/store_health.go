package apiserver

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// checkStore returns nil if the store answered when it was last checked.
func (s *Server) checkStore() error {
	if err := s.metrics.storeError.Load(); err != nil {
		return *err
	}
	return errors.New("not looked at yet")
}

// recordStoreAnswer records that the store did an operation that needs a majority of its members.
func (o *serverMetrics) recordStoreAnswer(at time.Time) {
	o.storeError.Store(new(error))
	o.storeAnsweredAt.Store(&at)
}

// monitorStore checks whether the store answers, whenever it has not been used successfully for a few seconds.
func (s *Server) monitorStore(ctx context.Context) error {
	// advertise writes to the store at this interval and records its success
	const silence = leaseKeyInterval + leaseKeyInterval/10
	for pause := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		if heard := s.metrics.storeAnsweredAt.Load(); heard != nil && time.Since(*heard) < silence {
			pause = silence - time.Since(*heard)
			continue
		}
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := s.options.Storage.raw.CheckHealth(call)
		cancel()
		if pause = silence; err != nil {
			s.metrics.storeError.Store(&err)
			pause = 500 * time.Millisecond
		} else {
			s.metrics.recordStoreAnswer(time.Now())
		}
	}
}

// maxReportedUnreadable is how many objects of a resource the health check names.
const maxReportedUnreadable = 10

// checkStoredReadable is a health check that fails and names the objects that cannot be read. It does not affect
// readiness, because the other servers cannot read them either.
func (s *Server) checkStoredReadable() error {
	var found []error
	for _, r := range s.cache.Resources() {
		if some := r.ReadErrors("", maxReportedUnreadable); len(some) > 0 {
			n, _ := r.CountUnreadable()
			found = append(found, fmt.Errorf("%d %s cannot be read: %w", n, r.Kind.GR(), errors.Join(some...)))
		}
	}
	return errors.Join(found...)
}
