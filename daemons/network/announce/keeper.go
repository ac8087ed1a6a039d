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

// With these times, another machine serves the addresses within two seconds after a machine has died. Standbys see a
// renewal within glance, and count the silence from then on. When the lease is due, they also ask the network whether a
// machine still has the address. If its kernel answers, only its daemon or its connection to the API server has failed,
// and connections to the address still work. It then keeps the lease until mercy is over, which is long before its
// kernel drops the address. If two machines hold an address for a moment, both forward packets, and the newer one's
// announcements come last.
const (
	leaseTime   = 1400 * time.Millisecond // silence after which another machine takes the lease of a dead machine
	mercy       = 3 * time.Second         // additional silence for a machine whose kernel still answers
	renewal     = 500 * time.Millisecond  // interval of renewals
	glance      = 200 * time.Millisecond  // interval of checks by the next machines in the ranking
	farGlance   = 10 * time.Second        // interval of checks by the other machines
	near        = 3                       // how many machines of the ranking count as next
	settled     = 10 * time.Second        // how long a machine must be the best to take over from a working one
	callTimeout = 500 * time.Millisecond  // limit of one request
	// lifetime is how long the kernel keeps an address. The kernel counts whole seconds and may be up to a second late.
	lifetime = 5 * time.Second
	// handover is how long addresses stay here after another machine was seen to hold the lease.
	handover   = 500 * time.Millisecond
	question   = 150 * time.Millisecond // how long to wait for an answer of the neighbours
	reannounce = 10 * time.Second       // interval of announcements, for neighbours that missed one
	loud       = 6                      // number of announcements in a row
	idleFor    = 10 * time.Second       // how long the lease of a duty without addresses is still checked
)

// keeper maintains one lease, and holds its addresses while this machine holds the lease.
type keeper struct {
	*Announcer
	lease string
	claim floating.Claim
	here  map[netip.Addr]*announced

	// written is the lease as this machine last wrote it. It is nil if the machine does not hold the lease, or does not
	// know.
	written *coordinationv1.Lease
	renewed time.Time // start of the last successful renewal
	vacant  time.Time // since when the lease has no holder
	seen    string    // resource version of the lease last read
	lost    time.Time // since when another machine is seen to hold the lease while addresses are here
	best    time.Time // since when this machine is the best
	idle    time.Time // since when the duty has no address
	problem string    // the problem last logged
}

// announced is an address that is on this machine.
type announced struct {
	place
	at   time.Time
	left int // announcements left to make in a row
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

// part leaves the addresses in the kernel for a moment, until this daemon has restarted or another machine has taken
// them.
func (k *keeper) part() {
	for _, p := range k.here {
		_ = p.Set(lifetime) // on an error the address expires sooner
	}
	k.count(k.lease, 0)
}

// round does what is due, and returns the time until the next round. Zero means that there is nothing left to do.
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

// watch checks a lease that this machine does not hold, or may have lost.
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
	// A machine far down the ranking checks less often. If the lease was unchanged since its last check, it checks soon
	// again, because the holder may be dead.
	if (rank >= near || rank < 0) && len(k.here) == 0 && (rank < 0 || k.seen != was) {
		next = farGlance
	}
	switch k.claim.Next(lease, able, started) {
	case floating.Keep:
		return renewal, k.take(ctx, lease, d)
	case floating.Release:
		// The addresses stay here until they expire in the kernel or another machine has the lease.
		for _, p := range k.here {
			p.left = loud // in case the address comes back
		}
		_, err = k.put(ctx, lease, "", d)
		k.count(k.lease, 0)
		return glance, err
	case floating.Take:
		// A vacant lease is reserved for the best machine for a while, so that the addresses do not move twice.
		if !k.vacant.IsZero() && rank > 0 && started.Sub(k.vacant) < leaseTime {
			return min(next, leaseTime-started.Sub(k.vacant)), nil
		}
		// If the kernel of a silent holder still answers, only its daemon may have failed, and it may come back.
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
	// Another machine writes the lease first, then adds the addresses and announces them. Keep the addresses until that
	// is done.
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

// answered reports whether another machine answers for the first address that the lease's holder had. It returns false
// if the question cannot be sent.
func (k *keeper) answered(lease *coordinationv1.Lease, d Duty) bool {
	had := strings.Split(lease.Annotations[addressesAnnotation], ", ")
	// Skip addresses that were added since, because no machine has them yet.
	first := max(slices.IndexFunc(d.Addresses, func(a netip.Addr) bool { return slices.Contains(had, a.String()) }), 0)
	p, err := k.placeOf(d.Addresses[first])
	if err != nil {
		return false
	}
	taken, err := p.Taken(question)
	return taken && err == nil
}

// able reports whether all addresses can be placed on this machine.
func (k *keeper) able(d Duty) bool {
	for _, a := range d.Addresses {
		if _, err := k.placeOf(a); err != nil {
			return false
		}
	}
	return true
}

// complete reports whether exactly these addresses are on this machine.
func (k *keeper) complete(d Duty) bool {
	for _, a := range d.Addresses {
		if k.here[a] == nil {
			return false
		}
	}
	return len(k.here) == len(d.Addresses)
}

// take takes or renews the lease, and places the addresses on this machine.
func (k *keeper) take(ctx context.Context, lease *coordinationv1.Lease, d Duty) error {
	started := time.Now()
	written, err := k.put(ctx, lease, k.Self, d)
	if err != nil {
		return err
	}
	if k.written = written; time.Since(started) > callTimeout+glance {
		return nil // the process was suspended in the meantime: another machine may have the lease by now
	}
	k.renewed, k.lost = started, time.Time{}
	return k.hold(d)
}

// hold adds the addresses or extends their lifetime in the kernel, and announces them to the neighbours.
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

// defend keeps the addresses while the lease cannot be renewed, because Services should work without an API server. If
// only this machine is cut off and another has taken over, the neighbours answer for the addresses, and defend drops
// them.
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
		// Until the holder of the other lease has it, which may be this machine, the address stays until it expires in
		// the kernel.
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

// abandon drops the addresses of a duty that has no addresses any more. It deletes the lease unless another machine
// still renews it.
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
			err = nil // the holder is alive
		}
	}
	if time.Since(k.idle) >= idleFor {
		return 0, err
	}
	return renewal, err
}
