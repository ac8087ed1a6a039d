package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"clusterctl/daemons/nft"
	"clusterctl/daemons/proxy/flows"
	"clusterctl/daemons/proxy/rules"
	"clusterctl/daemons/run/reconcile"
)

// ruleFamily maintains the rules of one address family.
type ruleFamily struct {
	family nft.Family
	ruleBackend
	staleFlows rules.StaleFlows // applied once the rules are in effect
}

const (
	checkInterval   = 2 * time.Second  // how often to check that the kernel still has the rules
	compareInterval = 30 * time.Second // how often to compare all rules while other programs change theirs
)

func (d *daemon) openFamilies() error {
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		c, err := newRuleBackend(d.mode, f, d.machine, &d.relays, d.env.Log)
		if err != nil {
			return err
		}
		d.families = append(d.families, &ruleFamily{family: f, ruleBackend: c})
	}
	return nil
}

// loop updates the rules after every change, until ctx ends.
func (d *daemon) loop(ctx context.Context) {
	for _, s := range d.services.List() {
		d.queueService(s)
	}
	l := reconcile.Loop{
		Log:             d.env.Log,
		Action:          "bring the rules up to date",
		Changes:         d.changes,
		OnChange:        d.programming.lastQueued.SetToCurrentTime,
		GatherTime:      d.cfg.MinSyncPeriod,
		Sync:            func(context.Context) error { return d.sync() },
		CheckInterval:   checkInterval,
		CompareInterval: compareInterval,
		IsIntact: func(whole bool) bool {
			d.health.serve() // retry ports that could not be opened
			return d.isIntact(whole)
		},
	}
	l.Run(ctx)
}

// isIntact reports whether the kernel still has all rules. With whole, it compares every rule. If the check fails, the
// next round repeats it.
func (d *daemon) isIntact(whole bool) bool {
	all := true
	for _, f := range d.families {
		if !f.IsUsed() {
			continue
		}
		intact, err := f.IsIntact(whole)
		if err != nil {
			d.env.Log.Warn("check whether the rules are in the kernel", "family", f.family, "error", err)
			continue
		}
		if !intact {
			d.env.Log.Warn("another program changed the rules; restoring them", "family", f.family)
			f.Invalidate()
			all = false
		}
	}
	return all
}

// sync updates the kernel's rules according to services and endpoints.
func (d *daemon) sync() error {
	start := time.Now()
	changes := d.programming.takePending()
	names, err := d.affectedServices()
	if err != nil {
		d.programming.restorePending(changes)
		return err
	}
	var failures []error
	for name := range names {
		if err := d.recompute(name); err != nil {
			d.pending.Retry(name)
			failures = append(failures, err)
		}
	}
	for _, f := range d.families {
		if !f.IsUsed() {
			continue
		}
		if err := f.Apply(); err != nil {
			failures = append(failures, err)
			continue
		}
		if err := flows.Delete(f.family, f.staleFlows); err != nil {
			d.env.Log.Warn("forget flows to endpoints that are gone", "error", err)
		}
		f.staleFlows = rules.StaleFlows{}
	}
	d.configureConntrack()
	d.health.serve()
	if len(failures) == 0 && !d.othersRemoved {
		if err := removeOtherModes(d.mode); err != nil {
			failures = append(failures, err)
		} else {
			d.othersRemoved = true
		}
	}
	if err := errors.Join(failures...); err != nil {
		d.programming.restorePending(changes)
		return err
	}
	if d.synced.Swap(time.Now().UnixNano()) == 0 {
		d.env.Log.Info("rules are there", "mode", d.mode, "services", len(names))
	}
	d.duration.Observe(time.Since(start).Seconds())
	d.programming.recordProgrammed(changes, time.Now())
	return nil
}

// affectedServices returns the services whose rules must be recomputed: those that have changed, or all if this
// machine's zone has changed.
func (d *daemon) affectedServices() (map[string]bool, error) {
	node, err := d.nodes.Get(d.name)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read this machine's node: %w", err)
	}
	names := d.pending.Take()
	if place := (rules.Location{Node: d.name, Zone: zoneOf(node)}); place != d.location {
		d.location = place
		for _, s := range d.services.List() {
			names[serviceOf(s)] = true
		}
	}
	return names, nil
}

// recompute recomputes the rules of one service.
func (d *daemon) recompute(name string) error {
	o, existing, err := d.services.GetByKey(name)
	if err != nil {
		return fmt.Errorf("read the service %s: %w", name, err)
	}
	var eps []*discoveryv1.EndpointSlice
	if existing {
		found, err := d.slices.ByIndex(serviceIndex, name)
		if err != nil {
			return fmt.Errorf("read the endpoints of the service %s: %w", name, err)
		}
		for _, o := range found {
			if s, ok := o.(*discoveryv1.EndpointSlice); ok {
				eps = append(eps, s)
			}
		}
	}
	var health []rules.Port
	for _, f := range d.families {
		var ports []rules.Port
		if svc, ok := o.(*corev1.Service); existing && ok {
			ports = rules.Ports(svc, eps, f.family, d.location)
		}
		f.staleFlows.AddChange(f.Ports(name), ports)
		if err := f.SetService(name, ports); err != nil {
			return fmt.Errorf("work out the rules of the service %s: %w", name, err)
		}
		health = append(health, ports...)
	}
	d.health.setService(name, health)
	return nil
}
