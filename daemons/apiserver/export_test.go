package apiserver

import (
	"context"
	"time"
)

// RepairAddresses compares claims of service addresses with Services once.
func (s *Server) RepairAddresses(ctx context.Context, now time.Time) error {
	return s.background.upkeep.RepairAddressesAt(ctx, now)
}
