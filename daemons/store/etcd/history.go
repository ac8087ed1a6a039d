package etcd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"clusterctl/daemons/store"
)

// readHistory identifies the history of the store that has been read. A store that is restored from a snapshot may
// reach the same revision again by other writes. A watch that continued there would never report the difference. A
// restore restarts all members, which ends every watch. So it suffices to check when a watch begins.
type readHistory struct {
	mu       sync.Mutex
	identity historyIdentity // zero before the first read
}

// identifyTimeout is how long a member may take to identify its cluster.
const identifyTimeout = 10 * time.Second

// recordIdentity records the identity of the history that is about to be read completely.
func (h *readHistory) recordIdentity(ctx context.Context, at *memberConn) error {
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	r, err := at.readIdentity(ctx)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.identity = r.identity
	return nil
}

// checkIdentity returns store.ErrCompacted if the store's history differs from the one read before.
func (h *readHistory) checkIdentity(ctx context.Context, at *memberConn) error {
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	r, err := at.readIdentity(ctx)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	before, after := h.identity, r.identity
	if before.cluster != 0 && (after.cluster != before.cluster || after.term < before.term) {
		return fmt.Errorf("etcd's data has been restored, cluster %x in term %d was %x in term %d: %w", after.cluster,
			after.term, before.cluster, before.term, store.ErrCompacted)
	}
	h.identity.term = max(before.term, after.term)
	return nil
}
