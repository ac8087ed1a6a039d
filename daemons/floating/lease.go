package floating

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Action is the next action for a lease.
type Action string

const (
	Wait    Action = "wait"    // another machine holds it, or this machine may not
	Take    Action = "take"    // it has no holder, or its holder is silent
	Keep    Action = "keep"    // this machine holds it: renew it
	Release Action = "release" // this machine holds it, but may not
)

// Claim records what this machine has seen of a lease. It does not compare the clocks of machines: silence is how long
// this machine has seen the same version. Time without a successful check does not count as silence, because the holder
// could not renew the lease either.
type Claim struct {
	Self       string
	MaxSilence time.Duration // silence after which another machine takes the lease

	version   string
	changedAt time.Time
	checkedAt time.Time
}

// Next returns the action for the current lease. lease is nil if it does not exist. healthy states whether this machine
// may hold the lease.
func (c *Claim) Next(lease *coordinationv1.Lease, healthy bool, now time.Time) Action {
	if lease == nil {
		c.version = ""
		return waitUnlessReady(healthy, Take)
	}
	if lease.ResourceVersion != c.version || now.Sub(c.checkedAt) >= c.MaxSilence {
		c.version, c.changedAt = lease.ResourceVersion, now
	}
	c.checkedAt = now
	switch holder := Holder(lease); {
	case holder == c.Self && healthy:
		return Keep
	case holder == c.Self:
		return Release
	case holder == "":
		return waitUnlessReady(healthy, Take)
	case now.Sub(c.changedAt) >= c.MaxSilence:
		return waitUnlessReady(healthy, Take)
	}
	return Wait
}

func waitUnlessReady(healthy bool, a Action) Action {
	if healthy {
		return a
	}
	return Wait
}

// Holder returns the holder of a lease, or "" if there is none.
func Holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// WithHolder returns the lease with the given holder, renewed now. With holder "", the lease is released. lease is nil
// if it does not exist yet.
func WithHolder(lease *coordinationv1.Lease, name, holder string, timeout time.Duration) *coordinationv1.Lease {
	now, seconds, moves := metav1.NowMicro(), int32((timeout+time.Second-1)/time.Second), int32(0)
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, AcquireTime: &now, LeaseTransitions: &moves}}
	} else {
		lease = lease.DeepCopy()
	}
	if Holder(lease) != holder {
		if moves = 1; lease.Spec.LeaseTransitions != nil {
			moves += *lease.Spec.LeaseTransitions
		}
		lease.Spec.AcquireTime, lease.Spec.LeaseTransitions = &now, &moves
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &holder, &seconds, &now
	return lease
}

// RemainingSilence returns how much longer the holder must be silent until the lease may be taken, according to the
// last call of Next.
func (c *Claim) RemainingSilence(now time.Time) time.Duration {
	return c.MaxSilence - now.Sub(c.changedAt)
}
