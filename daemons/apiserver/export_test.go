package apiserver

import (
	"context"
	"time"
)

// RepairAddresses compares claims of service addresses with Services once.
func (s *Server) RepairAddresses(ctx context.Context, now time.Time) error {
	return s.background.upkeep.RepairAddressesAt(ctx, now)
}

// OccupyCacheWait takes the places of all requests that may wait for the cache.
func (s *Server) OccupyCacheWait() { s.cacheWaiters.Add(maxCacheWaiters) }
