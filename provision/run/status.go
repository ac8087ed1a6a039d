package run

import (
	"context"

	"clusterctl/provision/host"
	"clusterctl/provision/plan"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// Status is how a machine is.
type Status struct {
	Address string        `json:"address"`
	Name    string        `json:"name"`
	Roles   []string      `json:"roles"`
	Facts   host.Facts    `json:"facts"`
	Differs []step.Change `json:"differs,omitempty"` // from what is declared
	Foreign []string      `json:"foreign,omitempty"` // files of others that do something there
	Error   string        `json:"error,omitempty"`   // why it could not be asked
}

// Overview is how a cluster's machines are.
type Overview struct {
	State    *state.State // nil when there is no cluster yet
	Machines []Status
	Members  string // how etcd's own list of members differs from the machines
}

// Status asks every machine how it is. One that does not answer is no reason to stop.
func (e *Engine) Status(ctx context.Context) (o Overview, err error) {
	if o.State, err = e.Store.Read(); err != nil || o.State == nil {
		return o, err
	}
	for _, i := range e.Config.Images {
		if _, err := e.Bundle.Add(i.Reference, i.Archive); err != nil {
			return o, err
		}
	}
	p := &Prepared{engine: e, State: o.State, Plan: &plan.Plan{}}
	defer p.Close()
	if err := p.selectable(); err != nil {
		return o, err
	}
	p.choose()
	o.Machines = make([]Status, len(p.machines))
	list := o.Machines
	index := map[*machine]int{}
	for i, m := range p.machines {
		index[m] = i
		list[i] = Status{Address: m.Address, Name: m.Name, Roles: m.Roles}
	}
	_ = p.each(ctx, p.machines, func(ctx context.Context, m *machine) error {
		own := &list[index[m]]
		err := p.reach(ctx, m)
		if err == nil {
			own.Facts = m.facts
			err = p.checkOne(ctx, m)
		}
		if err != nil {
			own.Error = err.Error()
			return nil
		}
		for _, c := range m.changes {
			if c.Kind == step.ForeignFiles {
				own.Foreign = append(own.Foreign, c.Name+": "+c.Note)
			}
			if c.Action != "" {
				own.Differs = append(own.Differs, c)
			}
		}
		return nil
	})
	o.Members = p.membership(ctx)
	return o, nil
}
