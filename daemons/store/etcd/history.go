package etcd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"clusterctl/daemons/store"
)

// history is which past of the store has been read. A store that is restored from a snapshot may have come to the same
// revision again by other writes; a watch that goes on there would never tell of the difference. For that all members
// have to be started anew, which ends every watch, so it is enough to look when one begins.
type history struct {
	mu   sync.Mutex
	read identity // zero: nothing was read yet
}

// recognize is how long a member may take to say which cluster it is of.
const recognize = 10 * time.Second

// begin notes which history is about to be read from its start.
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

// goesOn returns store.ErrCompacted when the history is another than the one that was read.
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
