package etcd

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// maxKeysPerLease is how many keys may share a lease, because revoking it is one large write.
const maxKeysPerLease = 1000

// leasePool provides leases for keys with a TTL. Keys that are written within a twentieth of their TTL share one, so
// that a burst of events does not need a lease each.
type leasePool struct {
	mutex chan struct{} // a mutex with capacity one; waiting for it can be cancelled
	byTTL map[time.Duration]*sharedLease
}

type sharedLease struct {
	id         clientv3.LeaseID
	reuseUntil time.Time
	keys       int
}

// get returns a lease for a TTL. It returns NoLease for a TTL of zero.
func (l *leasePool) get(ctx context.Context, client *clientv3.Client, ttl time.Duration) (clientv3.LeaseID, error) {
	if ttl <= 0 {
		return clientv3.NoLease, nil
	}
	select {
	case l.mutex <- struct{}{}:
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for a lease of %s: %w", ttl, ctx.Err())
	}
	defer func() { <-l.mutex }()
	now := time.Now()
	if s := l.byTTL[ttl]; s != nil && now.Before(s.reuseUntil) && s.keys < maxKeysPerLease {
		s.keys++
		return s.id, nil
	}
	window := min(ttl/20, time.Minute)
	seconds := int64((ttl + window + time.Second - 1) / time.Second)
	r, err := client.Grant(ctx, seconds)
	if err != nil {
		return 0, fmt.Errorf("grant a lease of %s: %w", ttl, err)
	}
	l.byTTL[ttl] = &sharedLease{id: r.ID, reuseUntil: now.Add(window), keys: 1}
	return r.ID, nil
}
