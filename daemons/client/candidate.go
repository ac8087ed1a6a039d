package client

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"clusterctl/kube/kubernetes"
)

// Timing of leases, as in upstream's daemons.
const (
	leaseDuration = 15 * time.Second // a lease that has not changed for this time may be taken over
	renewDeadline = 10 * time.Second // a holder that cannot renew its lease for this time gives it up
	retryPeriod   = 2 * time.Second
	retryJitter   = 1.2 // candidates wait up to this fraction of retryPeriod longer
)

// candidate holds a lease or waits for it. client-go's package leaderelection does the same, but imports all versions
// of all kinds.
type candidate struct {
	lock *leaseLock
	log  *slog.Logger

	record     leaseRecord // the lease as last read or written
	raw        []byte
	observedAt time.Time // when that state was first read, by this process's clock; other clocks do not matter
}

func newCandidate(client kubernetes.Interface, name, identity string, log *slog.Logger) *candidate {
	return &candidate{log: log, lock: &leaseLock{client: client, name: name, identity: identity}}
}

// acquire waits until the candidate holds the lease, and returns true. It returns false if ctx ends first.
func (c *candidate) acquire(ctx context.Context) bool {
	for ctx.Err() == nil {
		if c.tryAcquire(ctx) {
			return true
		}
		pause(ctx, wait.Jitter(retryPeriod, retryJitter))
	}
	return false
}

// renew renews the lease until ctx ends, and returns true. It returns false if the lease could not be renewed in time.
func (c *candidate) renew(ctx context.Context) bool {
	for pause(ctx, retryPeriod); ctx.Err() == nil; pause(ctx, retryPeriod) {
		limited, cancel := context.WithTimeout(ctx, renewDeadline)
		renewed := c.retry(limited)
		cancel()
		if !renewed && ctx.Err() == nil {
			return false
		}
	}
	return true
}

// retry tries until the candidate holds the lease, and returns true. It returns false if ctx ends first.
func (c *candidate) retry(ctx context.Context) bool {
	for !c.tryAcquire(ctx) {
		if pause(ctx, retryPeriod); ctx.Err() != nil {
			return false
		}
	}
	return true
}

// release releases the lease, so that another candidate need not wait until it expires.
func (c *candidate) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, renewDeadline)
	defer cancel()
	for {
		record, _, err := c.lock.get(ctx)
		if err == nil && record.holder != c.lock.identity {
			return
		}
		if err == nil {
			now := metav1.Now()
			err = c.lock.update(ctx,
				leaseRecord{transitions: record.transitions, duration: time.Second, renewed: now, acquired: now})
		}
		if !apierrors.IsConflict(err) { // after a conflict, try again: an earlier renewal may have arrived late
			if err != nil {
				c.log.Info("cannot let a lease go: it runs out", "lease", c.lock.name, "err", err)
			}
			return
		}
	}
}

// tryAcquire takes or renews the lease, and reports whether the candidate holds it.
func (c *candidate) tryAcquire(ctx context.Context) bool {
	if c.isHolder() && time.Since(c.observedAt) < leaseDuration {
		// No other candidate may have written to it, so it need not be read first.
		next, _ := nextRecord(c.record, c.lock.identity, c.observedAt, time.Now())
		if c.write(ctx, next, c.lock.update) {
			return true
		}
	}
	seen, raw, err := c.lock.get(ctx)
	switch {
	case apierrors.IsNotFound(err):
		next, _ := nextRecord(leaseRecord{}, c.lock.identity, time.Time{}, time.Now())
		next.transitions = 0
		return c.write(ctx, next, c.lock.create)
	case err != nil:
		c.log.Info("cannot read a lease", "lease", c.lock.name, "err", err)
		return false
	}
	if !bytes.Equal(raw, c.raw) {
		c.observe(seen, raw)
	}
	next, free := nextRecord(c.record, c.lock.identity, c.observedAt, time.Now())
	return free && c.write(ctx, next, c.lock.update)
}

// nextRecord returns the record that a candidate writes to a lease whose state is unchanged since since. It reports
// whether the candidate may take the lease.
func nextRecord(held leaseRecord, me string, since, now time.Time) (leaseRecord, bool) {
	next := leaseRecord{
		holder: me, duration: leaseDuration, acquired: metav1.NewTime(now), renewed: metav1.NewTime(now),
		transitions: held.transitions + 1,
	}
	if held.holder == me {
		next.acquired, next.transitions = held.acquired, held.transitions
		return next, true
	}
	ends := since.Add(held.duration)
	return next, held.holder == "" || !ends.After(now)
}

// write writes a record to the lease, and reports whether that succeeded.
func (c *candidate) write(
	ctx context.Context, record leaseRecord, by func(context.Context, leaseRecord) error,
) bool {
	if err := by(ctx, record); err != nil {
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) { // another candidate was faster
			c.log.Info("cannot write a lease", "lease", c.lock.name, "err", err)
		}
		return false
	}
	c.observe(record, nil)
	return true
}

func (c *candidate) observe(record leaseRecord, raw []byte) {
	if record.holder != c.record.holder && record.holder != "" {
		c.log.Info("leader elected", "lease", c.lock.name, "leader", record.holder)
	}
	c.record, c.raw, c.observedAt = record, raw, time.Now()
}

func (c *candidate) isHolder() bool { return c.record.holder == c.lock.identity }

// pause waits for a while, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
