// Package presence removes the endpoints of dead daemons. These daemons run one replica on each machine, and each
// replica publishes itself in a Service without a selector (daemons/client/presence). A replica can change only the
// objects of its own machine, so a controller has to remove them.
package presence

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api/replica"
	"clusterctl/daemons/controllers/loop"
)

// A replica is silent if its lease stays unchanged for the lease duration. Clocks of machines are not compared: the
// controller adds up the time between successful reads that found the lease unchanged, so that an outage of the API
// does not count.
const (
	minReadInterval = 5 * time.Second  // minimum interval between reads of a service's leases
	readsPerLease   = 4                // reads per lease duration
	maxSilence      = 10 * time.Minute // maximum time that a lease may be silent
	callTimeout     = 10 * time.Second // limit of the API calls for one service
)

type controller struct {
	loop.Context
	services map[string]*service // by daemon
}

// service holds the observed leases of a daemon's replicas.
type service struct {
	daemon   string
	nextRead time.Time             // of the next read
	leases   map[string]leaseState // by the lease's name
}

// leaseState records how long a lease has been unchanged.
type leaseState struct {
	renewed   metav1.MicroTime
	silentFor time.Duration
	readAt    time.Time
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	p := &controller{Context: c, services: map[string]*service{}}
	for _, daemon := range replica.Publishers() {
		p.services[daemon] = &service{daemon: daemon, leases: map[string]leaseState{}}
	}
	return p
}

// Run checks the leases until ctx ends.
func (p *controller) Run(ctx context.Context) error {
	tick := p.NewTicker(minReadInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
		for _, daemon := range replica.Publishers() {
			if err := p.checkService(ctx, p.services[daemon]); err != nil && ctx.Err() == nil {
				p.Log.Info("will try again", "controller", "presence", "daemon", daemon, "reason", err)
			}
		}
	}
}

// checkService reads the leases of a service, and removes the endpoints of silent replicas.
func (p *controller) checkService(ctx context.Context, s *service) error {
	now := p.Now()
	if now.Before(s.nextRead) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	label := replica.LeaseLabel(replica.Manager(s.daemon))
	found, err := p.Client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx,
		metav1.ListOptions{LabelSelector: label + "=" + s.daemon})
	if err != nil {
		s.nextRead = now
		return fmt.Errorf("list the leases of %s: %w", s.daemon, err)
	}
	dead := s.silentReplicas(found.Items, now)
	var failed error
	for _, lease := range dead {
		if err := p.removeReplica(ctx, s.daemon, lease); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		p.Log.Info("removed the endpoints of a silent daemon", "daemon", s.daemon, "lease", lease.Name)
	}
	return failed
}

// silentReplicas records the current leases, and returns the leases of silent replicas. It returns none if no other
// replica is alive: the last endpoints stay, because that replica may come back and no other can replace it.
func (s *service) silentReplicas(list []coordinationv1.Lease, now time.Time) (dead []*coordinationv1.Lease) {
	next, alive := maxSilence, false
	seen := map[string]leaseState{}
	for i := range list {
		lease := &list[i]
		if _, ok := replica.Machine(s.daemon, lease.Name); !ok || lease.Spec.RenewTime == nil {
			continue
		}
		timeout := leaseTimeout(lease)
		next = min(next, timeout/readsPerLease)
		before, found := s.leases[lease.Name]
		after := leaseState{renewed: *lease.Spec.RenewTime, readAt: now}
		if found && before.renewed.Equal(&after.renewed) {
			// Limit the added time, so that a pause of this process does not count as silence of a replica.
			after.silentFor = before.silentFor + min(now.Sub(before.readAt), timeout/readsPerLease+minReadInterval)
		}
		seen[lease.Name] = after
		switch {
		case after.silentFor > timeout:
			dead = append(dead, lease)
		case found && after.silentFor <= timeout/2:
			alive = true
		}
	}
	// the ticker comes a little early or late
	s.leases, s.nextRead = seen, now.Add(max(next, minReadInterval)-minReadInterval/2)
	if !alive {
		return nil
	}
	return dead
}

// leaseTimeout returns how long a lease may stay unchanged.
func leaseTimeout(lease *coordinationv1.Lease) time.Duration {
	seconds := time.Duration(0)
	if d := lease.Spec.LeaseDurationSeconds; d != nil {
		seconds = time.Duration(*d) * time.Second
	}
	return min(max(seconds, readsPerLease*minReadInterval), maxSilence)
}

// removeReplica deletes the endpoints of a silent replica, and then its lease if it is still unchanged. A replica that
// came back in between keeps its lease and publishes its endpoints again.
func (p *controller) removeReplica(ctx context.Context, daemon string, lease *coordinationv1.Lease) error {
	machine, _ := replica.Machine(daemon, lease.Name)
	for _, name := range replica.Slices(daemon, machine) {
		err := p.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete the endpoint slice %s: %w", name, err)
		}
	}
	err := p.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, lease.Name, loop.IfUnchanged(lease))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete the lease %s: %w", lease.Name, err)
	}
	return nil
}
