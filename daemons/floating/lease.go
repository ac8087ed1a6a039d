package floating

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Action is the next thing to do about a lease.
type Action string

const (
	Wait    Action = "wait"    // it is another's
	Take    Action = "take"    // nobody has it, or the holder is silent
	Keep    Action = "keep"    // it is ours: renew it
	Release Action = "release" // it is ours, and is not to be
)

// Claim remembers what this machine has seen of a lease. Clocks of machines are not compared: silence is how long the
// same version has been seen here. What passes while nothing is seen is none: the holder could not renew it then
// either.
type Claim struct {
	Self     string
	Patience time.Duration // silence after which another machine takes the lease

	version string
	since   time.Time
	looked  time.Time
}

// Next decides from the lease as it is, which is nil when there is none. well is whether this machine may have it.
func (c *Claim) Next(lease *coordinationv1.Lease, well bool, now time.Time) Action {
	if lease == nil {
		c.version = ""
		return orWait(well, Take)
	}
	if lease.ResourceVersion != c.version || now.Sub(c.looked) >= c.Patience {
		c.version, c.since = lease.ResourceVersion, now
	}
	c.looked = now
	switch holder := Holder(lease); {
	case holder == c.Self && well:
		return Keep
	case holder == c.Self:
		return Release
	case holder == "":
		return orWait(well, Take)
	case now.Sub(c.since) >= c.Patience:
		return orWait(well, Take)
	}
	return Wait
}

func orWait(well bool, a Action) Action {
	if well {
		return a
	}
	return Wait
}

// Holder is who has a lease, "" for nobody.
func Holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// Written returns a lease as it is when who holds it says so now. lease is nil where there was none.
func Written(lease *coordinationv1.Lease, name, who string, patience time.Duration) *coordinationv1.Lease {
	now, seconds, moves := metav1.NowMicro(), int32((patience+time.Second-1)/time.Second), int32(0)
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &who, AcquireTime: &now, LeaseTransitions: &moves}}
	} else {
		lease = lease.DeepCopy()
	}
	if Holder(lease) != who {
		if moves = 1; lease.Spec.LeaseTransitions != nil {
			moves += *lease.Spec.LeaseTransitions
		}
		lease.Spec.AcquireTime, lease.Spec.LeaseTransitions = &now, &moves
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &who, &seconds, &now
	return lease
}

// Silent is how much longer the holder that Next was last told of must be silent for the lease to be taken.
func (c *Claim) Silent(now time.Time) time.Duration { return c.Patience - now.Sub(c.since) }
