package etcd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"clusterctl/daemons/store"
)

// history identifies the history of the store that has been read. A store that is restored from a snapshot may reach
// the same revision again by other writes. A watch that continued there would never report the difference. A restore
// restarts all members, which ends every watch. So it suffices to check when a watch begins.
type history struct {
	mu   sync.Mutex
	read identity // zero before the first read
}

// recognize is how long a member may take to identify its cluster.
const recognize = 10 * time.Second

// begin records the identity of the history that is about to be read completely.
func (h *history) begin(ctx context.Context, at *seat) error {
	ctx, cancel := context.WithTimeout(ctx, recognize)
	defer cancel()
	r, err := at.askWho(ctx)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.read = r.identity
	return nil
}

// goesOn returns store.ErrCompacted if the store's history differs from the one read before.
func (h *history) goesOn(ctx context.Context, at *seat) error {
	ctx, cancel := context.WithTimeout(ctx, recognize)
	defer cancel()
	r, err := at.askWho(ctx)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	was, is := h.read, r.identity
	if was.cluster != 0 && (is.cluster != was.cluster || is.term < was.term) {
		return fmt.Errorf(
			"etcd's data has been restored, cluster %x in term %d was %x in term %d: %w",
			is.cluster,
			is.term,
			was.cluster,
			was.term,
			store.ErrCompacted,
		)
	}
	h.read.term = max(was.term, is.term)
	return nil
}
