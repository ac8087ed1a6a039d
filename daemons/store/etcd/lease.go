package etcd

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// perLease is how many keys may share a lease, because revoking it is one large write.
const perLease = 1000

// leases provides leases for keys with a TTL. Keys that are written within a twentieth of their TTL share one, so that
// a burst of events does not need a lease each.
type leases struct {
	turn  chan struct{} // a mutex with capacity one; waiting for it can be cancelled
	byTTL map[time.Duration]*shared
}

type shared struct {
	id    clientv3.LeaseID
	until time.Time
	keys  int
}

// get returns a lease for a TTL. It returns NoLease for a TTL of zero.
func (l *leases) get(ctx context.Context, client *clientv3.Client, ttl time.Duration) (clientv3.LeaseID, error) {
	if ttl <= 0 {
		return clientv3.NoLease, nil
	}
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for a lease of %s: %w", ttl, ctx.Err())
	}
	defer func() { <-l.turn }()
	now := time.Now()
	if s := l.byTTL[ttl]; s != nil && now.Before(s.until) && s.keys < perLease {
		s.keys++
		return s.id, nil
	}
	window := min(ttl/20, time.Minute)
	seconds := int64((ttl + window + time.Second - 1) / time.Second)
	r, err := client.Grant(ctx, seconds)
	if err != nil {
		return 0, fmt.Errorf("grant a lease of %s: %w", ttl, err)
	}
	l.byTTL[ttl] = &shared{id: r.ID, until: now.Add(window), keys: 1}
	return r.ID, nil
}
