package run

import (
	"context"
	"time"

	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/support"
)

// Collected is what one machine contributes to a support bundle.
type Collected struct {
	Name  string
	Files []support.File
	Error string // why it could not be collected
}

const collectTimeout = 3 * time.Minute

// Collect collects from all machines at once. It continues when a machine does not answer. The returned state is nil if
// there is no cluster yet; the declared machines are asked anyway.
func (e *Engine) Collect(ctx context.Context) ([]Collected, *state.State, error) {
	s, err := e.Store.Read()
	if err != nil {
		return nil, nil, err
	}
	known := s
	if known == nil {
		known = &state.State{}
	}
	p := e.newPrepared(known)
	defer p.Close()
	p.chooseMachines()
	list := make([]Collected, len(p.session.Machines))
	index := map[*session.Machine]int{}
	for i, m := range p.session.Machines {
		index[m], list[i].Name = i, m.Name
	}
	err = p.session.ForEach(ctx, p.session.Machines, func(ctx context.Context, m *session.Machine) error {
		own := &list[index[m]]
		err := p.session.Connect(ctx, m)
		if err == nil {
			ctx, cancel := context.WithTimeout(ctx, collectTimeout)
			defer cancel()
			own.Files, err = m.Agent.Collect(ctx)
		}
		if err != nil {
			own.Error = err.Error()
		}
		return nil
	})
	return list, s, err
}
