package upkeep

import (
	"context"
	"errors"
	"time"

	"clusterctl/daemons/store"
)

// compactInterval is how long the store keeps overwritten revisions. It is upstream's interval.
const compactInterval = 5 * time.Minute

// compact removes revisions older than compactInterval from the store. Every server does this; a server that is late
// finds the revisions compacted already.
func (s *Upkeep) compact(ctx context.Context) error {
	tick := time.NewTicker(compactInterval)
	defer tick.Stop()
	before := int64(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if before > 0 {
			call, cancel := context.WithTimeout(ctx, 30*time.Second)
			err := s.config.Raw.Compact(call, before)
			cancel()
			if err != nil && !errors.Is(err, store.ErrCompacted) && ctx.Err() == nil {
				s.config.Log.Warn("compact the store", "revision", before, "err", err)
			}
			if err == nil || errors.Is(err, store.ErrCompacted) {
				s.config.Cache.RecordCompaction(before)
			}
		}
		before = s.config.Cache.Reached()
	}
}
