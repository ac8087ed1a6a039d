package network

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"
)

// packetFilters are this machine's packet filters, besides those of network policies.
type packetFilters struct {
	log        *slog.Logger
	clusters   []netip.Prefix
	exceptions []netip.Prefix // networks that pods reach without masquerading
	masquerade *masquerade    // nil on a machine without pods
	overlay    peerFilter     // protects the overlay
	others     otherFilters   // packet filters of other programs
}

// restoreLoop restores masquerading and forwarding when they were removed, for example by flushing the machine's packet
// filter.
func (f *packetFilters) restoreLoop(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for last, looked := "", time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		deep := time.Since(looked) > compareInterval
		if deep {
			looked = time.Now()
		}
		intact, err := f.masquerade.isIntact(deep)
		if err == nil && !intact {
			f.log.Warn("another program changed the rules for masquerading; restoring them")
			err = f.masquerade.restore()
		}
		problem := ""
		if err = errors.Join(err, enableForwarding(f.clusters), f.overlay.restore(deep),
			f.others.ensureAccepted(deep)); err != nil {
			problem = err.Error()
		}
		if problem != last && problem != "" {
			f.log.Warn("repair masquerading", "error", err)
		}
		last = problem
	}
}

// restoreAnswerMarks enables marking if the kernel has routes to callers that pods answer through the overlay. Those
// routes survive a restart of the daemon.
func (f *packetFilters) restoreAnswerMarks() error {
	callers, err := routedAddresses()
	if err != nil {
		return err
	}
	return f.masquerade.setAnswerMarks(len(callers) > 0)
}
