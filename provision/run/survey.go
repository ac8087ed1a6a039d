package run

import (
	"context"
	"errors"
	"slices"

	"clusterctl/provision/host"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/etcd"
	"clusterctl/provision/run/rebuild"
	"clusterctl/provision/run/session"
	"clusterctl/provision/run/survey"
	"clusterctl/provision/state"
)

// readMachines returns a run over the machines of the state and the configuration, for commands that only read. It
// returns a nil run if there is no cluster yet.
func (e *Engine) readMachines() (*Prepared, error) {
	s, err := e.Store.Read()
	if err != nil || s == nil {
		return nil, err
	}
	p := e.newPrepared(s)
	p.setMachines(p.situation.ChooseMachines())
	return p, nil
}

// Status returns the status of every machine.
func (e *Engine) Status(ctx context.Context) (o survey.Overview, err error) {
	p, err := e.readMachines()
	if err != nil || p == nil {
		return o, err
	}
	defer p.Close()
	o.State = p.State
	if _, err := e.addImages(); err != nil {
		return o, err
	}
	if err := p.situation.CheckSelection(); err != nil {
		return o, err
	}
	o.Machines = survey.Statuses(ctx, p.session, e.Config.ControlPlane())
	o.Members = etcd.DescribeMembership(ctx, e.Config, p.State, p.session.Machines)
	return o, nil
}

// Collect collects from all machines at once. It continues when a machine does not answer. The returned state is nil if
// there is no cluster yet; the declared machines are asked anyway.
func (e *Engine) Collect(ctx context.Context) ([]survey.Collected, *state.State, error) {
	s, err := e.Store.Read()
	if err != nil {
		return nil, nil, err
	}
	recorded := s
	if recorded == nil {
		recorded = &state.State{}
	}
	p := e.newPrepared(recorded)
	defer p.Close()
	p.setMachines(p.situation.ChooseMachines())
	list, err := survey.Collect(ctx, p.session)
	return list, s, err
}

// Trace makes the machines of these nodes watch for a packet, as survey.Trace describes.
func (e *Engine) Trace(
	ctx context.Context,
	q host.Trace,
	nodes []string,
	sender string,
	send func(ctx context.Context),
) ([]survey.Traced, error) {
	p, err := e.readMachines()
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, errors.New("there is no cluster yet")
	}
	defer p.Close()
	p.session.Machines = session.Filter(p.session.Machines,
		func(m *session.Machine) bool { return slices.Contains(nodes, m.Name) })
	return survey.Trace(ctx, p.session, q, sender, send)
}

// Expirations returns the expiry of the certificates on every machine.
func (e *Engine) Expirations(ctx context.Context) ([]survey.Expiration, error) {
	p, err := e.readMachines()
	if err != nil || p == nil {
		return nil, err
	}
	defer p.Close()
	if _, err := e.addImages(); err != nil {
		return nil, err
	}
	p.session.Steps = p.stepsOf // also of machines that are no longer declared
	return survey.Expirations(ctx, p.session)
}

// WithoutAPI returns the machines that reach no API server: the reasons, by the machine's address.
func (p *Prepared) WithoutAPI(ctx context.Context) map[string]string {
	return survey.WithoutAPI(ctx, p.session, session.Filter(p.session.Machines, func(m *session.Machine) bool {
		return m.IsConnected() && m.Action != plan.Remove && p.State.Machines[m.Address].HasJoined
	}), p.engine.Config.ControlPlane())
}

// Rebuild reconstructs a lost state from what the declared machines and the API report. It changes nothing on them and
// writes nothing. notes describe what it could not find out.
func (e *Engine) Rebuild(ctx context.Context) (s *state.State, notes []string, err error) {
	p := e.newPrepared(&state.State{})
	defer p.Close()
	for _, m := range e.Config.Machines {
		p.session.Machines = append(p.session.Machines, &session.Machine{Machine: m})
	}
	return rebuild.State(ctx, e.Config, p.session, e.ConnectCluster)
}
