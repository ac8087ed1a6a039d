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
	Error   string        `json:"error,omitempty"`   // why it could not be asked
}

// Status asks every machine how it is. One that does not answer is no reason to stop.
// The state is nil when there is no cluster yet.
func (e *Engine) Status(ctx context.Context) ([]Status, *state.State, error) {
	s, err := e.Store.Read()
	if err != nil || s == nil {
		return nil, s, err
	}
	for _, i := range e.Config.Images {
		if _, err := e.Bundle.Add(i.Reference, i.Archive); err != nil {
			return nil, nil, err
		}
	}
	p := &Prepared{engine: e, State: s, Plan: &plan.Plan{}}
	defer p.Close()
	if err := p.selectable(); err != nil {
		return nil, nil, err
	}
	p.choose()
	list := make([]Status, len(p.machines))
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
			if c.Action != "" {
				own.Differs = append(own.Differs, c)
			}
		}
		return nil
	})
	return list, s, nil
}
