package announce

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/floating"
)

// The times have another machine answer within two seconds of the death of one: a renewal is seen within glance,
// silence counts from then, and nobody answers the question who has the address. Where its kernel still answers, only
// the daemon of a machine is dead, or its way to the API server, and connections to the address live: it has until
// mercy is over, a good while before the kernel drops the address. While two hold an address for a moment, both pass on
// what comes, and the newer one's announcements come last.
const (
	leaseTime   = 1400 * time.Millisecond // silence after which another machine takes the lease from one that is dead
	mercy       = 3 * time.Second         // how much more silence a machine may have whose kernel answers
	renewal     = 500 * time.Millisecond  // between two renewals
	glance      = 200 * time.Millisecond  // between two looks of those that are next
	farGlance   = 10 * time.Second        // of the others
	near        = 3                       // how many machines are next
	settled     = 10 * time.Second        // how long a machine must have been the best to take over from one that lives
	callTimeout = 500 * time.Millisecond  // of one request
	// that the kernel keeps an address; it counts whole seconds and may be a good second late
	lifetime = 5 * time.Second
	// that addresses stay here after another machine has been seen to have the lease
	handover   = 500 * time.Millisecond
	question   = 150 * time.Millisecond // how long neighbours are waited for
	reannounce = 10 * time.Second       // for those that have missed it
	loud       = 6                      // announcements at once
	idleFor    = 10 * time.Second       // how long the lease of no address is looked after
)

// keeper holds one lease, and the addresses with it, whenever it is this machine's turn.
type keeper struct {
	*Announcer
	lease string
	claim floating.Claim
	here  map[netip.Addr]*announced

	written *coordinationv1.Lease // as this machine has written it last; nil when it does not hold it, or does not know
	renewed time.Time             // when the last renewal that succeeded was sent
	vacant  time.Time             // since when nobody has the lease
	seen    string                // the version of the lease that was read last
	lost    time.Time             // since when another machine is seen to have the lease while addresses are here
	best    time.Time             // since when this machine is the best
	idle    time.Time             // since when there is no address
	problem string                // that was told last
}

// announced is an address that is here.
type announced struct {
	place
	at   time.Time
	left int // announcements to make at once
}

func newKeeper(a *Announcer, lease string) *keeper {
	return &keeper{
		Announcer: a,
		lease:     lease,
		claim:     floating.Claim{Self: a.Self, Patience: leaseTime},
		here:      map[netip.Addr]*announced{},
	}
}

func (k *keeper) run(ctx context.Context, wake <-chan struct{}) {
	defer k.part()
	for {
		next, err := k.round(ctx)
		problem := ""
		if err != nil {
			problem = err.Error()
		}
		if problem != k.problem && ctx.Err() == nil {
			if k.problem = problem; problem != "" {
				k.Log.Warn("look after addresses of services", "lease", k.lease, "problem", problem)
			}
		}
		if next == 0 {
			return
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// part leaves the addresses to the kernel for a moment: this daemon comes back by then, or another machine has taken
// them.
func (k *keeper) part() {
	for _, p := range k.here {
		_ = p.Set(lifetime) // what is not done by now goes sooner
	}
	k.count(k.lease, 0)
}

// round does what is due, and returns when the next one is; zero when there is nothing left to do.
func (k *keeper) round(ctx context.Context) (next time.Duration, err error) {
	d := k.duty(k.lease)
	if len(d.Addresses) == 0 {
		return k.abandon(ctx)
	}
	k.idle = time.Time{}
	rank := slices.Index(d.Machines, k.Self)
	able := rank >= 0 && k.able(d)
	if rank != 0 || !able {
		k.best = time.Time{}
	} else if k.best.IsZero() {
		k.best = time.Now()
	}
	if k.written != nil && able {
		if wait := renewal - time.Since(k.renewed); wait > 0 && k.complete(d) {
			return wait, nil
		}
		if err = k.take(ctx, k.written, d); err == nil {
			return renewal, nil
		}
		if !errors.Is(err, errLost) {
			return glance, errors.Join(err, k.defend(d))
		}
	}
	k.written = nil
	return k.watch(ctx, d, rank, able)
}

// watch looks at a lease that this machine does not hold, or may have lost.
func (k *keeper) watch(ctx context.Context, d Duty, rank int, able bool) (next time.Duration, err error) {
	started := time.Now()
	lease, err := k.get(ctx)
	if err != nil {
		if len(k.here) > 0 && able {
			err = errors.Join(err, k.defend(d))
		}
		return glance, err
	}
	if lease != nil && floating.Holder(lease) != "" {
		k.vacant = time.Time{}
	} else if k.vacant.IsZero() {
		k.vacant = started
	}
	next = glance
	was := k.seen
	if k.seen = ""; lease != nil {
		k.seen = lease.ResourceVersion
	}
	// A machine far down the ranking asks less often, except after a look that found the lease unchanged: its holder
	// may be dead.
	if (rank >= near || rank < 0) && len(k.here) == 0 && (rank < 0 || k.seen != was) {
		next = farGlance
	}
	switch k.claim.Next(lease, able, started) {
	case floating.Keep:
		return renewal, k.take(ctx, lease, d)
	case floating.Release:
		// The addresses stay here until their time in the kernel is over or another machine has the lease.
		for _, p := range k.here {
			p.left = loud // should it come back
		}
		_, err = k.put(ctx, lease, "", d)
		k.count(k.lease, 0)
		return glance, err
	case floating.Take:
		// A vacant lease is left to the best machine for a while, so that addresses need not move again right away.
		if !k.vacant.IsZero() && rank > 0 && started.Sub(k.vacant) < leaseTime {
			return min(next, leaseTime-started.Sub(k.vacant)), nil
		}
		// Of a silent holder whose kernel still answers the daemon alone may be dead, and it may come back.
		if lease != nil && floating.Holder(lease) != "" && k.claim.Silent(started) > -mercy && k.answered(lease, d) {
			return glance, nil
		}
		return renewal, k.take(ctx, lease, d)
	}
	if lease == nil || floating.Holder(lease) == "" {
		return next, nil
	}
	if rank == 0 && !k.best.IsZero() && time.Since(k.best) >= settled {
		k.Log.Info("taking addresses of services over as planned", "lease", k.lease, "from", floating.Holder(lease))
		return renewal, k.take(ctx, lease, d)
	}
	// Who takes a lease writes it first, and only then has the addresses and tells the neighbours.
	if k.lost.IsZero() {
		k.lost = started
	}
	if wait := handover - started.Sub(k.lost); wait > 0 && len(k.here) > 0 {
		return min(next, wait), nil
	}
	k.drop("machine " + floating.Holder(lease) + " has the lease")
	if due := k.claim.Silent(started); rank < near && due > 0 {
		next = min(next, due)
	}
	return next, nil
}

// answered reports whether another machine says that it has the first of the addresses that a lease's holder had. One
// that cannot be asked for is answered by nobody.
func (k *keeper) answered(lease *coordinationv1.Lease, d Duty) bool {
	had := strings.Split(lease.Annotations[addressesAnnotation], ", ")
	// Another may have come since, which nobody has yet.
	first := max(slices.IndexFunc(d.Addresses, func(a netip.Addr) bool { return slices.Contains(had, a.String()) }), 0)
	p, err := k.placeOf(d.Addresses[first])
	if err != nil {
		return false
	}
	taken, err := p.Taken(question)
	return taken && err == nil
}

// able reports whether all addresses can be on this machine.
func (k *keeper) able(d Duty) bool {
	for _, a := range d.Addresses {
		if _, err := k.placeOf(a); err != nil {
			return false
		}
	}
	return true
}

// complete reports whether just these addresses are here.
func (k *keeper) complete(d Duty) bool {
	for _, a := range d.Addresses {
		if k.here[a] == nil {
			return false
		}
	}
	return len(k.here) == len(d.Addresses)
}

// take takes or renews the lease, and has the addresses here.
func (k *keeper) take(ctx context.Context, lease *coordinationv1.Lease, d Duty) error {
	started := time.Now()
	written, err := k.put(ctx, lease, k.Self, d)
	if err != nil {
		return err
	}
	if k.written = written; time.Since(started) > callTimeout+glance {
		return nil // the process was frozen meanwhile: the lease may be another's by now
	}
	k.renewed, k.lost = started, time.Time{}
	return k.hold(d)
}

// hold has the kernel keep the addresses a moment longer, and tells the neighbours.
func (k *keeper) hold(d Duty) error {
	var failures []error
	for a := range k.here {
		if !slices.Contains(d.Addresses, a) {
			k.remove(a, "it is no service's")
		}
	}
	for _, a := range d.Addresses {
		p := k.here[a]
		if p == nil {
			at, err := k.placeOf(a)
			if err != nil {
				failures = append(failures, err)
				continue
			}
			p = &announced{place: at, left: loud}
		}
		if err := p.Set(lifetime); err != nil {
			k.forget(a)
			delete(k.here, a)
			failures = append(failures, err)
			continue
		}
		if k.here[a] == nil {
			k.here[a] = p
			k.Log.Info("an address of services is here", "address", a, "interface", p.Interface(), "lease", k.lease)
		}
		if p.left > 0 || time.Since(p.at) > reannounce {
			p.left, p.at = max(p.left-1, 0), time.Now()
			failures = append(failures, p.Announce())
		}
	}
	k.count(k.lease, len(k.here))
	return errors.Join(failures...)
}

// defend goes on with the addresses while the lease cannot be renewed: that no API server answers is no reason for
// Services not to. Whether this machine alone is cut off, and another has taken over, the neighbours say.
func (k *keeper) defend(d Duty) error {
	if time.Since(k.renewed) >= leaseTime {
		for _, a := range d.Addresses[:min(2, len(d.Addresses))] {
			if p := k.here[a]; p != nil {
				taken, err := p.Taken(question)
				if err != nil {
					return err
				}
				if taken {
					k.drop("another machine answers for them")
					return nil
				}
			}
		}
	}
	if len(k.here) == 0 {
		return nil
	}
	return k.hold(d)
}

func (k *keeper) drop(reason string) {
	for a := range k.here {
		k.remove(a, reason)
	}
	k.lost = time.Time{}
	k.count(k.lease, 0)
}

func (k *keeper) remove(a netip.Addr, reason string) {
	if k.elsewhere(k.lease, a) {
		// Until the holder of that lease has it, which may be this machine, it stays for the moment for which the
		// kernel keeps it.
		k.Log.Info("an address of services comes under another lease", "address", a, "lease", k.lease)
		delete(k.here, a)
		return
	}
	if err := k.here[a].Remove(); err != nil {
		k.Log.Error(
			"remove an address of services; the kernel itself removes it in a moment",
			"address",
			a,
			"error",
			err,
		)
	} else {
		k.Log.Info("an address of services is given up", "address", a, "lease", k.lease, "reason", reason)
	}
	delete(k.here, a)
}

// abandon ends what was held for addresses that are no Service's any more.
func (k *keeper) abandon(ctx context.Context) (next time.Duration, err error) {
	k.drop("it is no service's")
	k.written = nil
	if k.idle.IsZero() {
		k.idle = time.Now()
	}
	lease, err := k.get(ctx)
	switch {
	case err != nil:
	case lease == nil:
		return 0, nil
	case k.claim.Next(lease, true, time.Now()) != floating.Wait:
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		err = k.Leases.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, k.lease, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion}})
		if err == nil || apierrors.IsNotFound(err) {
			return 0, nil
		}
		if apierrors.IsConflict(err) {
			err = nil // its holder lives
		}
	}
	if time.Since(k.idle) >= idleFor {
		return 0, err
	}
	return renewal, err
}
