package run

import (
	"context"
	"errors"
	"slices"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/etcd"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
)

// OpenStore connects to the machines of the control plane. It succeeds if at least one of them is reached.
func (e *Engine) OpenStore(ctx context.Context) (*etcd.Access, error) {
	s, err := e.Store.Read()
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, errors.New("there is no cluster yet: apply first")
	}
	p := e.newPrepared(s)
	for _, m := range e.Config.ControlPlane() {
		if s.Machines[m.Address].HasJoined {
			p.session.Machines = append(p.session.Machines, &session.Machine{Machine: m, Action: plan.Change})
		}
	}
	a := &etcd.Access{Session: p.session, Ledger: p.ledger, State: s, Config: e.Config}
	return a, a.Open(ctx)
}

// Restore restores the store, and lets the other machines join it as new members. A restore that is interrupted starts
// over until the first member has its data; from then on it continues as a normal apply.
func (e *Engine) Restore(ctx context.Context, r etcd.Restore) error {
	if err := e.Store.SaveVersion(); err != nil {
		return err
	}
	kept := *e
	kept.Config = e.withoutExcluded()
	a, err := kept.OpenStore(ctx)
	if err != nil {
		return err
	}
	defer a.Close()
	if s := a.State.Restore; s != nil && s.HasFirstMember {
		e.send(
			report.Event{
				Kind:    report.Note,
				Message: "going on with the restore from " + s.Snapshot + ", whose first member is on " + s.Machine,
			},
		)
		return e.startAndJoin(ctx, s.Machine)
	}
	p := kept.newPrepared(a.State)
	p.setMachines(a.Session.Machines)
	if err := p.checkIdentities(); err != nil {
		// otherwise the apply that follows would refuse the machines, after the store was discarded
		return err
	}
	first, err := a.Restore(ctx, r)
	if err != nil {
		return err
	}
	a.Close()
	return e.startAndJoin(ctx, first)
}

// withoutExcluded returns the configuration without the machines that -exclude names, which are known to be off.
func (e *Engine) withoutExcluded() *config.Cluster {
	c := *e.Config
	c.Machines = slices.DeleteFunc(slices.Clone(c.Machines), func(m config.Machine) bool {
		return slices.ContainsFunc(e.Excludes, func(t string) bool { return config.Includes(t, m.Address) })
	})
	return &c
}

// startAndJoin starts the first machine and lets the others join its store, as apply does with new members.
func (e *Engine) startAndJoin(ctx context.Context, first string) error {
	var all []string
	begin := ""
	for _, m := range e.withoutExcluded().ControlPlane() {
		all = append(all, m.Address)
		if m.Name == first {
			begin = m.Address
		}
	}
	for _, targets := range [][]string{{begin}, all} {
		part := *e
		part.Targets, part.Excludes = targets, nil
		p, err := part.Prepare(ctx)
		if err != nil {
			return err
		}
		err = p.Apply(ctx)
		p.Close()
		if err != nil {
			return err
		}
	}
	s, err := e.Store.Read()
	if err != nil || s == nil || s.Restore == nil {
		return err
	}
	s.Restore = nil
	return e.Store.Write(s)
}
