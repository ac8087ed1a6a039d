package address

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// The times fit together so that two machines never hold the address at once: what the
// holder put into the kernel is gone before anybody else may take the lease.
const (
	leaseTime   = 4 * time.Second         // silence after which another machine takes the lease
	hold        = 2500 * time.Millisecond // silence after which the holder itself lets go
	period      = 500 * time.Millisecond  // between two looks
	callTimeout = time.Second             // of one request
	unwell      = 1500 * time.Millisecond // how long the API server here may fail before the address moves
)

// action is the next thing to do about the lease.
type action string

const (
	wait    action = "wait"    // it is another's
	take    action = "take"    // nobody has it, or the holder is silent
	keep    action = "keep"    // it is ours: renew it
	release action = "release" // it is ours, and the API server here is not well
)

// claim remembers what this machine has seen of the lease. Clocks of machines are not
// compared: silence is how long the same version has been seen here.
type claim struct {
	self    string
	version string
	since   time.Time
}

// next decides from the lease as it is, which is nil when there is none.
func (c *claim) next(lease *coordinationv1.Lease, well bool, now time.Time) action {
	if lease == nil {
		c.version = ""
		return orWait(well, take)
	}
	if lease.ResourceVersion != c.version {
		c.version, c.since = lease.ResourceVersion, now
	}
	switch holder := holderOf(lease); {
	case holder == c.self && well:
		return keep
	case holder == c.self:
		return release
	case holder == "":
		return orWait(well, take)
	case now.Sub(c.since) >= leaseTime:
		return orWait(well, take)
	}
	return wait
}

func orWait(well bool, a action) action {
	if well {
		return a
	}
	return wait
}

func holderOf(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// lifetime is how long the kernel is to keep the address when a renewal was sent so
// long ago. The kernel counts whole seconds and may be a good second late.
func lifetime(elapsed time.Duration) time.Duration {
	if elapsed <= period {
		return 2 * time.Second
	}
	return time.Second
}
