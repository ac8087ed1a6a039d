package run

import (
	"context"
	"net"
	"sync"

	"clusterctl/provision/host"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// Status is the status of one machine.
type Status struct {
	Address string        `json:"address"`
	Name    string        `json:"name"`
	Roles   []string      `json:"roles"`
	Facts   host.Facts    `json:"facts"`
	Changes []step.Change `json:"differs,omitempty"` // differences from the declaration
	Foreign []string      `json:"foreign,omitempty"` // files with an effect that clusterctl did not write
	Error   string        `json:"error,omitempty"`   // why the status is unknown
	NoAPI   string        `json:"noAPI,omitempty"`   // why it reaches no API server
}

// Overview is the status of all machines of a cluster.
type Overview struct {
	State    *state.State // nil when there is no cluster yet
	Machines []Status
	Members  string // how etcd's own list of members differs from the machines
}

// Status returns the status of every machine. A machine that does not answer does not stop it.
func (e *Engine) Status(ctx context.Context) (o Overview, err error) {
	if o.State, err = e.Store.Read(); err != nil || o.State == nil {
		return o, err
	}
	for _, i := range e.Config.Images {
		if _, err := e.Bundle.Add(i.Reference, i.Archive); err != nil {
			return o, err
		}
	}
	p := e.newPrepared(o.State)
	defer p.Close()
	if err := p.checkSelection(); err != nil {
		return o, err
	}
	p.chooseMachines()
	o.Machines = make([]Status, len(p.session.Machines))
	list := o.Machines
	index := map[*session.Machine]int{}
	for i, m := range p.session.Machines {
		index[m] = i
		list[i] = Status{Address: m.Address, Name: m.Name, Roles: m.Roles}
	}
	_ = p.session.ForEach(ctx, p.session.Machines, func(ctx context.Context, m *session.Machine) error {
		own := &list[index[m]]
		err := p.session.Connect(ctx, m)
		if err == nil {
			own.Facts = m.Facts
			err = p.session.Check(ctx, m)
		}
		if err != nil {
			own.Error = err.Error()
			return nil
		}
		for _, c := range m.Changes {
			if c.Kind == step.ForeignFiles {
				own.Foreign = append(own.Foreign, c.Name+": "+c.Note)
			}
			if c.Action != "" {
				own.Changes = append(own.Changes, c)
			}
		}
		own.NoAPI = p.apiProblem(ctx, m)
		return nil
	})
	o.Members = p.describeMembership(ctx)
	return o, nil
}

// apiProblem returns why a machine reaches no API server, or "" if it reaches one.
func (p *Prepared) apiProblem(ctx context.Context, m *session.Machine) string {
	way := &step.APIReach{Client: host.Client{CA: role.PKI + "/ca.crt"}}
	for _, c := range p.engine.Config.ControlPlane() {
		way.URLs = append(way.URLs, "https://"+net.JoinHostPort(c.IP.String(), "6443")+"/livez")
	}
	changes, err := m.Agent.Check(ctx, []step.Step{way})
	switch {
	case err != nil:
		return err.Error()
	case len(changes) == 1:
		return changes[0].Note
	}
	return ""
}

// WithoutAPI returns the machines that reach no API server: the reasons, by the machine's address. Their nodes get no
// updates and become not ready.
func (p *Prepared) WithoutAPI(ctx context.Context) map[string]string {
	var mu sync.Mutex
	found := map[string]string{}
	var asked []*session.Machine
	for _, m := range p.session.Machines {
		if m.Agent != nil && m.UnreachedReason == nil && m.Action != plan.Remove &&
			p.State.Machines[m.Address].HasJoined {
			asked = append(asked, m)
		}
	}
	_ = p.session.ForEach(ctx, asked, func(ctx context.Context, m *session.Machine) error {
		if why := p.apiProblem(ctx, m); why != "" {
			mu.Lock()
			found[m.Address] = why
			mu.Unlock()
		}
		return nil
	})
	return found
}
