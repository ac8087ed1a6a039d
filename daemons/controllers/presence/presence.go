// Package presence removes the endpoints of daemons that died: those that daemons publish of themselves, one replica on each
// machine, in a service without a selector (daemons/client/presence). A daemon may change the objects of its own machine only.
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

// How silence is found. Clocks of machines are not compared: a lease is silent for as long as this process has seen it
// unchanged, in looks that succeeded, so that an outage of the API counts for no replica.
const (
	shortest = 5 * time.Second // between two looks at the leases of a service
	looks    = 4               // in the duration of a lease
	longest  = 10 * time.Minute
	callTime = 10 * time.Second
)

type controller struct {
	loop.Context
	services map[string]*service // by daemon
}

// service is what is known of the replicas of a daemon.
type service struct {
	daemon string
	due    time.Time // of the next look
	leases map[string]standing
}

// standing is how long a lease was seen unchanged.
type standing struct {
	renewed metav1.MicroTime
	silent  time.Duration
	looked  time.Time
}

// New returns the controller.
func New(c loop.Context) loop.Controller {
	p := &controller{Context: c, services: map[string]*service{}}
	for _, daemon := range replica.Publishers() {
		p.services[daemon] = &service{daemon: daemon, leases: map[string]standing{}}
	}
	return p
}

// Run looks at the leases until ctx ends.
func (p *controller) Run(ctx context.Context) error {
	tick := p.NewTicker(shortest)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
		for _, daemon := range replica.Publishers() {
			if err := p.look(ctx, p.services[daemon]); err != nil && ctx.Err() == nil {
				p.Log.Info("will try again", "controller", "presence", "daemon", daemon, "reason", err)
			}
		}
	}
}

// look looks at the leases of a service, and removes the endpoints of the replicas that are silent.
func (p *controller) look(ctx context.Context, s *service) error {
	now := p.Now()
	if now.Before(s.due) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	label := replica.LeaseLabel(replica.Manager(s.daemon))
	found, err := p.Client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{LabelSelector: label + "=" + s.daemon})
	if err != nil {
		s.due = now
		return fmt.Errorf("list the leases of %s: %w", s.daemon, err)
	}
	dead := s.dead(found.Items, now)
	var failed error
	for _, lease := range dead {
		if err := p.bury(ctx, s.daemon, lease); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		p.Log.Info("removed the endpoints of a daemon that is silent", "daemon", s.daemon, "lease", lease.Name)
	}
	return failed
}

// dead takes the leases of a service in, and returns those of replicas that are silent, as long as another one is not: the
// endpoints of the last one stay, since it may come back and there is nothing better.
func (s *service) dead(list []coordinationv1.Lease, now time.Time) (dead []*coordinationv1.Lease) {
	next, alive := longest, false
	seen := map[string]standing{}
	for i := range list {
		lease := &list[i]
		if _, ok := replica.Machine(s.daemon, lease.Name); !ok || lease.Spec.RenewTime == nil {
			continue
		}
		patience := patience(lease)
		next = min(next, patience/looks)
		was, known := s.leases[lease.Name]
		is := standing{renewed: *lease.Spec.RenewTime, looked: now}
		if known && was.renewed.Equal(&is.renewed) {
			// A pause of this process is no silence of a replica.
			is.silent = was.silent + min(now.Sub(was.looked), patience/looks+shortest)
		}
		seen[lease.Name] = is
		switch {
		case is.silent > patience:
			dead = append(dead, lease)
		case known && is.silent <= patience/2:
			alive = true
		}
	}
	s.leases, s.due = seen, now.Add(max(next, shortest)-shortest/2) // the ticker comes a little early or late
	if !alive {
		return nil
	}
	return dead
}

// patience is how long a lease may be silent.
func patience(lease *coordinationv1.Lease) time.Duration {
	seconds := time.Duration(0)
	if d := lease.Spec.LeaseDurationSeconds; d != nil {
		seconds = time.Duration(*d) * time.Second
	}
	return min(max(seconds, looks*shortest), longest)
}

// bury deletes the endpoints of a silent replica, and then its lease as it was seen: a replica that came back keeps it, and
// publishes its endpoints again.
func (p *controller) bury(ctx context.Context, daemon string, lease *coordinationv1.Lease) error {
	machine, _ := replica.Machine(daemon, lease.Name)
	for _, name := range replica.Slices(daemon, machine) {
		err := p.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete the endpoint slice %s: %w", name, err)
		}
	}
	err := p.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, lease.Name, loop.AsSeen(lease))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete the lease %s: %w", lease.Name, err)
	}
	return nil
}
