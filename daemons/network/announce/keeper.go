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

// With these times, another machine serves the addresses within two seconds after a machine has died. The next machines
// in the ranking see a renewal within nextCheckInterval, and measure the silence from then on. When the lease expires,
// they also ask the network whether a machine still has the address. If the holder's kernel answers, only its daemon or
// its connection to the API server has failed, and connections to the address still work. The holder then keeps the
// lease for answeringGrace, which ends long before its kernel drops the address. If two machines hold an address for a
// moment, both forward packets, and the newer holder's announcements come last.
const (
	// leaseTime is the silence after which another machine takes the lease of a dead machine.
	leaseTime          = 1400 * time.Millisecond
	answeringGrace     = 3 * time.Second        // additional silence for a machine whose kernel still answers
	renewInterval      = 500 * time.Millisecond // interval of renewals
	nextCheckInterval  = 200 * time.Millisecond // interval of checks by the next machines in the ranking
	otherCheckInterval = 10 * time.Second       // interval of checks by the other machines
	nextMachines       = 3                      // how many machines of the ranking count as next
	takeoverDelay      = 10 * time.Second       // how long a machine must be the best to take over from a working one
	callTimeout        = 500 * time.Millisecond // limit of one request
	// addressLifetime is how long the kernel keeps an address. The kernel counts whole seconds and may be up to a
	// second late.
	addressLifetime = 5 * time.Second
	// handoverTime is how long addresses stay here after another machine was seen to hold the lease.
	handoverTime     = 500 * time.Millisecond
	probeTimeout     = 150 * time.Millisecond // how long to wait for an answer of the neighbours
	announceInterval = 10 * time.Second       // interval of announcements, for neighbours that missed one
	announceCount    = 6                      // number of announcements in a row
	idleLeaseTime    = 10 * time.Second       // how long the lease of a duty without addresses is still checked
)

// leaseKeeper maintains one lease, and holds its addresses while this machine holds the lease.
type leaseKeeper struct {
	*Announcer
	lease     string
	claim     floating.Claim
	announced map[netip.Addr]*announcedAddress

	// written is the lease as this machine last wrote it. It is nil if the machine does not hold the lease, or does not
	// know.
	written       *coordinationv1.Lease
	renewedAt     time.Time // start of the last successful renewal
	vacantSince   time.Time // since when the lease has no holder
	seenVersion   string    // resource version of the lease last read
	lostSince     time.Time // since when another machine is seen to hold the lease while addresses are here
	bestSince     time.Time // since when this machine is the best
	idleSince     time.Time // since when the duty has no address
	loggedProblem string    // the problem last logged
}

// announcedAddress is an address that is on this machine.
type announcedAddress struct {
	addressPlace
	announcedAt       time.Time
	announcementsLeft int // announcements left to make in a row
}

func newLeaseKeeper(a *Announcer, lease string) *leaseKeeper {
	return &leaseKeeper{
		Announcer: a,
		lease:     lease,
		claim:     floating.Claim{Self: a.Self, MaxSilence: leaseTime},
		announced: map[netip.Addr]*announcedAddress{},
	}
}

func (k *leaseKeeper) run(ctx context.Context, wake <-chan struct{}) {
	defer k.keepInKernel()
	for {
		next, err := k.runRound(ctx)
		problem := ""
		if err != nil {
			problem = err.Error()
		}
		if problem != k.loggedProblem && ctx.Err() == nil {
			if k.loggedProblem = problem; problem != "" {
				k.Log.Warn("hold addresses of services", "lease", k.lease, "problem", problem)
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

// keepInKernel leaves the addresses in the kernel for a moment, until this daemon has restarted or another machine has
// taken them.
func (k *leaseKeeper) keepInKernel() {
	for _, p := range k.announced {
		_ = p.Set(addressLifetime) // on an error the address expires sooner
	}
	k.setHeldCount(k.lease, 0)
}

// runRound does what is due, and returns the time until the next round. Zero means that there is nothing left to do.
func (k *leaseKeeper) runRound(ctx context.Context) (next time.Duration, err error) {
	d := k.duty(k.lease)
	if len(d.Addresses) == 0 {
		return k.release(ctx)
	}
	k.idleSince = time.Time{}
	rank := slices.Index(d.Machines, k.Self)
	able := rank >= 0 && k.canPlace(d)
	if rank != 0 || !able {
		k.bestSince = time.Time{}
	} else if k.bestSince.IsZero() {
		k.bestSince = time.Now()
	}
	if k.written != nil && able {
		if wait := renewInterval - time.Since(k.renewedAt); wait > 0 && k.hasExactly(d) {
			return wait, nil
		}
		if err = k.acquire(ctx, k.written, d); err == nil {
			return renewInterval, nil
		}
		if !errors.Is(err, errLeaseLost) {
			return nextCheckInterval, errors.Join(err, k.keepWithoutLease(d))
		}
	}
	k.written = nil
	return k.checkLease(ctx, d, rank, able)
}

// checkLease checks a lease that this machine does not hold, or may have lost.
func (k *leaseKeeper) checkLease(ctx context.Context, d Duty, rank int, able bool) (next time.Duration, err error) {
	started := time.Now()
	lease, err := k.readLease(ctx)
	if err != nil {
		if len(k.announced) > 0 && able {
			err = errors.Join(err, k.keepWithoutLease(d))
		}
		return nextCheckInterval, err
	}
	if lease != nil && floating.Holder(lease) != "" {
		k.vacantSince = time.Time{}
	} else if k.vacantSince.IsZero() {
		k.vacantSince = started
	}
	next = nextCheckInterval
	before := k.seenVersion
	if k.seenVersion = ""; lease != nil {
		k.seenVersion = lease.ResourceVersion
	}
	// A machine far down the ranking checks less often. If the lease was unchanged since its last check, it checks soon
	// again, because the holder may be dead.
	if (rank >= nextMachines || rank < 0) && len(k.announced) == 0 && (rank < 0 || k.seenVersion != before) {
		next = otherCheckInterval
	}
	switch k.claim.Next(lease, able, started) {
	case floating.Keep:
		return renewInterval, k.acquire(ctx, lease, d)
	case floating.Release:
		// The addresses stay here until they expire in the kernel or another machine has the lease.
		for _, p := range k.announced {
			p.announcementsLeft = announceCount // in case the address comes back
		}
		_, err = k.writeLease(ctx, lease, "", d)
		k.setHeldCount(k.lease, 0)
		return nextCheckInterval, err
	case floating.Take:
		// A vacant lease is reserved for the best machine for a while, so that the addresses do not move twice.
		if !k.vacantSince.IsZero() && rank > 0 && started.Sub(k.vacantSince) < leaseTime {
			return min(next, leaseTime-started.Sub(k.vacantSince)), nil
		}
		// If the kernel of a silent holder still answers, only its daemon may have failed, and it may come back.
		if lease != nil && floating.Holder(lease) != "" && k.claim.RemainingSilence(started) > -answeringGrace &&
			k.isAnswering(lease, d) {
			return nextCheckInterval, nil
		}
		return renewInterval, k.acquire(ctx, lease, d)
	}
	if lease == nil || floating.Holder(lease) == "" {
		return next, nil
	}
	if rank == 0 && !k.bestSince.IsZero() && time.Since(k.bestSince) >= takeoverDelay {
		k.Log.Info("taking addresses of services over as planned", "lease", k.lease, "from", floating.Holder(lease))
		return renewInterval, k.acquire(ctx, lease, d)
	}
	// Another machine writes the lease first, then adds the addresses and announces them. Keep the addresses until that
	// is done.
	if k.lostSince.IsZero() {
		k.lostSince = started
	}
	if wait := handoverTime - started.Sub(k.lostSince); wait > 0 && len(k.announced) > 0 {
		return min(next, wait), nil
	}
	k.dropAll("machine " + floating.Holder(lease) + " has the lease")
	if due := k.claim.RemainingSilence(started); rank < nextMachines && due > 0 {
		next = min(next, due)
	}
	return next, nil
}

// isAnswering reports whether another machine answers for the first address that the lease's holder had. It returns
// false if the question cannot be sent.
func (k *leaseKeeper) isAnswering(lease *coordinationv1.Lease, d Duty) bool {
	before := strings.Split(lease.Annotations[addressesAnnotation], ", ")
	// Skip addresses that were added since, because no machine has them yet.
	first := max(slices.IndexFunc(d.Addresses,
		func(a netip.Addr) bool { return slices.Contains(before, a.String()) }), 0)
	p, err := k.placeOf(d.Addresses[first])
	if err != nil {
		return false
	}
	taken, err := p.IsTaken(probeTimeout)
	return taken && err == nil
}

// canPlace reports whether all addresses can be placed on this machine.
func (k *leaseKeeper) canPlace(d Duty) bool {
	for _, a := range d.Addresses {
		if _, err := k.placeOf(a); err != nil {
			return false
		}
	}
	return true
}

// hasExactly reports whether exactly these addresses are on this machine.
func (k *leaseKeeper) hasExactly(d Duty) bool {
	for _, a := range d.Addresses {
		if k.announced[a] == nil {
			return false
		}
	}
	return len(k.announced) == len(d.Addresses)
}

// acquire takes or renews the lease, and places the addresses on this machine.
func (k *leaseKeeper) acquire(ctx context.Context, lease *coordinationv1.Lease, d Duty) error {
	started := time.Now()
	written, err := k.writeLease(ctx, lease, k.Self, d)
	if err != nil {
		return err
	}
	if k.written = written; time.Since(started) > callTimeout+nextCheckInterval {
		return nil // the process was suspended in the meantime: another machine may have the lease by now
	}
	k.renewedAt, k.lostSince = started, time.Time{}
	return k.placeAddresses(d)
}

// placeAddresses adds the addresses or extends their lifetime in the kernel, and announces them to the neighbours.
func (k *leaseKeeper) placeAddresses(d Duty) error {
	var failures []error
	for a := range k.announced {
		if !slices.Contains(d.Addresses, a) {
			k.removeAddress(a, "it does not belong to a service")
		}
	}
	for _, a := range d.Addresses {
		p := k.announced[a]
		if p == nil {
			at, err := k.placeOf(a)
			if err != nil {
				failures = append(failures, err)
				continue
			}
			p = &announcedAddress{addressPlace: at, announcementsLeft: announceCount}
		}
		if err := p.Set(addressLifetime); err != nil {
			k.dropPlace(a)
			delete(k.announced, a)
			failures = append(failures, err)
			continue
		}
		if k.announced[a] == nil {
			k.announced[a] = p
			k.Log.Info("an address of services is here", "address", a, "interface", p.Interface(), "lease", k.lease)
		}
		if p.announcementsLeft > 0 || time.Since(p.announcedAt) > announceInterval {
			p.announcementsLeft, p.announcedAt = max(p.announcementsLeft-1, 0), time.Now()
			failures = append(failures, p.Announce())
		}
	}
	k.setHeldCount(k.lease, len(k.announced))
	return errors.Join(failures...)
}

// keepWithoutLease keeps the addresses while the lease cannot be renewed, because Services should work without an API
// server. If only this machine is cut off and another machine has taken over, the other machine answers for the
// addresses, and keepWithoutLease drops them.
func (k *leaseKeeper) keepWithoutLease(d Duty) error {
	if time.Since(k.renewedAt) >= leaseTime {
		for _, a := range d.Addresses[:min(2, len(d.Addresses))] {
			if p := k.announced[a]; p != nil {
				taken, err := p.IsTaken(probeTimeout)
				if err != nil {
					return err
				}
				if taken {
					k.dropAll("another machine answers for them")
					return nil
				}
			}
		}
	}
	if len(k.announced) == 0 {
		return nil
	}
	return k.placeAddresses(d)
}

func (k *leaseKeeper) dropAll(reason string) {
	for a := range k.announced {
		k.removeAddress(a, reason)
	}
	k.lostSince = time.Time{}
	k.setHeldCount(k.lease, 0)
}

func (k *leaseKeeper) removeAddress(a netip.Addr, reason string) {
	if k.isOnOtherLease(k.lease, a) {
		// Until the holder of the other lease has it, which may be this machine, the address stays until it expires in
		// the kernel.
		k.Log.Info("an address of services comes under another lease", "address", a, "lease", k.lease)
		delete(k.announced, a)
		return
	}
	if err := k.announced[a].Remove(); err != nil {
		k.Log.Error("remove an address of services; the kernel itself removes it in a moment", "address", a, "error",
			err)
	} else {
		k.Log.Info("an address of services is given up", "address", a, "lease", k.lease, "reason", reason)
	}
	delete(k.announced, a)
}

// release drops the addresses of a duty that has no addresses any more. It deletes the lease unless another machine
// still renews it.
func (k *leaseKeeper) release(ctx context.Context) (next time.Duration, err error) {
	k.dropAll("it does not belong to a service")
	k.written = nil
	if k.idleSince.IsZero() {
		k.idleSince = time.Now()
	}
	lease, err := k.readLease(ctx)
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
	if time.Since(k.idleSince) >= idleLeaseTime {
		return 0, err
	}
	return renewInterval, err
}
