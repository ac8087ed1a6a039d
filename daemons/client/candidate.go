package client

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	lock "k8s.io/client-go/tools/leaderelection/resourcelock"
)

// How leases are held, as by upstream's daemons.
const (
	leaseDuration = 15 * time.Second // a lease that has not changed for that long may be taken
	renewDeadline = 10 * time.Second // a holder that cannot renew for that long gives up
	retryPeriod   = 2 * time.Second
	retryJitter   = 1.2 // candidates wait up to this part of retryPeriod longer
)

// candidate holds a lease, or waits for it. Package leaderelection of client-go does the same, and imports all generated
// informers.
type candidate struct {
	lock *lock.LeaseLock
	log  *slog.Logger

	held  lock.LeaderElectionRecord // the lease as it was last seen or written
	raw   []byte
	since time.Time // when it was first seen so, by this process's clock: others' clocks do not matter
}

func newCandidate(client kubernetes.Interface, name, identity string, log *slog.Logger) *candidate {
	return &candidate{log: log, lock: &lock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name},
		Client:     client.CoordinationV1(),
		LockConfig: lock.ResourceLockConfig{Identity: identity},
	}}
}

// acquire waits until the candidate holds the lease, and reports whether it does; it does not when ctx ends first.
func (c *candidate) acquire(ctx context.Context) bool {
	for ctx.Err() == nil {
		if c.try(ctx) {
			return true
		}
		pause(ctx, wait.Jitter(retryPeriod, retryJitter))
	}
	return false
}

// renew keeps the lease until ctx ends, and reports whether it was kept.
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

// retry tries until the candidate holds the lease, and reports whether it does; it does not when ctx ends first.
func (c *candidate) retry(ctx context.Context) bool {
	for !c.try(ctx) {
		if pause(ctx, retryPeriod); ctx.Err() != nil {
			return false
		}
	}
	return true
}

// release lets the lease go, so that another candidate need not wait until it has run out.
func (c *candidate) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, renewDeadline)
	defer cancel()
	for {
		record, _, err := c.lock.Get(ctx)
		if err == nil && record.HolderIdentity != c.lock.Identity() {
			return
		}
		if err == nil {
			now := metav1.Now()
			err = c.lock.Update(ctx, lock.LeaderElectionRecord{
				LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now,
			})
		}
		if !apierrors.IsConflict(err) { // a renewal that was under way may have come between
			if err != nil {
				c.log.Info("cannot let a lease go: it runs out", "lease", c.lock.LeaseMeta.Name, "err", err)
			}
			return
		}
	}
}

// try takes or renews the lease, and reports whether the candidate holds it now.
func (c *candidate) try(ctx context.Context) bool {
	if c.holds() && time.Since(c.since) < leaseDuration {
		// No other candidate may have written to it: it need not be read first.
		next, _ := claim(c.held, c.lock.Identity(), c.since, time.Now())
		if c.write(ctx, next, c.lock.Update) {
			return true
		}
	}
	seen, raw, err := c.lock.Get(ctx)
	switch {
	case apierrors.IsNotFound(err):
		next, _ := claim(lock.LeaderElectionRecord{}, c.lock.Identity(), time.Time{}, time.Now())
		next.LeaderTransitions = 0
		return c.write(ctx, next, c.lock.Create)
	case err != nil:
		c.log.Info("cannot read a lease", "lease", c.lock.LeaseMeta.Name, "err", err)
		return false
	}
	if !bytes.Equal(raw, c.raw) {
		c.observe(*seen, raw)
	}
	next, free := claim(c.held, c.lock.Identity(), c.since, time.Now())
	return free && c.write(ctx, next, c.lock.Update)
}

// claim returns what a candidate writes into a lease that is held since some time, and reports whether it may.
func claim(held lock.LeaderElectionRecord, me string, since, now time.Time) (lock.LeaderElectionRecord, bool) {
	next := lock.LeaderElectionRecord{
		HolderIdentity: me, LeaseDurationSeconds: int(leaseDuration / time.Second),
		AcquireTime: metav1.NewTime(now), RenewTime: metav1.NewTime(now),
		LeaderTransitions: held.LeaderTransitions + 1,
	}
	if held.HolderIdentity == me {
		next.AcquireTime, next.LeaderTransitions = held.AcquireTime, held.LeaderTransitions
		return next, true
	}
	ends := since.Add(time.Duration(held.LeaseDurationSeconds) * time.Second)
	return next, held.HolderIdentity == "" || !ends.After(now)
}

// write writes a record to the lease, and reports whether it is written.
func (c *candidate) write(
	ctx context.Context, record lock.LeaderElectionRecord, by func(context.Context, lock.LeaderElectionRecord) error,
) bool {
	if err := by(ctx, record); err != nil {
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) { // another was faster
			c.log.Info("cannot write a lease", "lease", c.lock.LeaseMeta.Name, "err", err)
		}
		return false
	}
	c.observe(record, nil)
	return true
}

func (c *candidate) observe(record lock.LeaderElectionRecord, raw []byte) {
	if record.HolderIdentity != c.held.HolderIdentity && record.HolderIdentity != "" {
		c.log.Info("leader elected", "lease", c.lock.LeaseMeta.Name, "leader", record.HolderIdentity)
	}
	c.held, c.raw, c.since = record, raw, time.Now()
}

func (c *candidate) holds() bool { return c.held.HolderIdentity == c.lock.Identity() }

// pause waits for a while, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
