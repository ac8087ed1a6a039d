package run

import (
	"context"
	"errors"
	"slices"

	"clusterctl/provision/plan"
	"clusterctl/provision/run/certificate"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/ledger"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// Prepared is a decision with the open connections to carry it out.
type Prepared struct {
	decide.Decision

	situation *decide.Situation // what the decision was made from
	engine    *Engine
	session   *session.Session
	ledger    *ledger.Ledger
	issuer    *certificate.Issuer
	renewals  certificate.Renewals        // guarded by the ledger
	lists     certificate.RevocationLists // guarded by the ledger
}

// preparePhase is a part of planning.
type preparePhase struct {
	name string
	when func(decide.Options) bool // nil means always
	do   func(*Prepared, context.Context) error
}

// preparation is how a run plans, in order. Only the phase "connect" and those after it use machines. No phase changes
// a machine, an object or the state on disk.
var preparation = []preparePhase{
	{"choose machines", isChange, (*Prepared).chooseMachines},
	{"check the selection", isChange, (*Prepared).checkSelection},
	{"connect", isChange, (*Prepared).connect},
	{"decide members", isNoDestroy, (*Prepared).decideMembers},
	{"check machines", isChange, (*Prepared).checkMachines},
	{"check the change", isChange, (*Prepared).checkChange},
	{"summarize", isChange, (*Prepared).summarize},
	{"compare objects", isChange, (*Prepared).compareObjects},
	{"check deletions", isChange, (*Prepared).checkDeletions},
	{"order stages", isChange, (*Prepared).orderStages},
	{"refresh", isRefresh, (*Prepared).planRefresh},
}

func isRefresh(o decide.Options) bool   { return o.IsRefreshOnly }
func isChange(o decide.Options) bool    { return !o.IsRefreshOnly }
func isNoDestroy(o decide.Options) bool { return !o.IsRefreshOnly && !o.IsDestroy }

// Prepare connects to every machine and checks everything, without changing anything. It returns an error that names
// all machines that cannot become as declared. With SkipsUnreachable, nodes that are not reached are left out as if
// they were excluded, and Skipped names them.
func (e *Engine) Prepare(ctx context.Context) (*Prepared, error) {
	own := *e
	own.Excludes = slices.Clone(e.Excludes)
	var all skippedError
	for {
		p, err := own.prepare(ctx)
		var more *skippedError
		if !errors.As(err, &more) {
			if p != nil {
				all.addTo(&p.Decision)
			}
			return p, err
		}
		for _, m := range more.list {
			own.Excludes = append(own.Excludes, m.Machine.Address)
		}
		all.list = append(all.list, more.list...)
	}
}

func (e *Engine) prepare(ctx context.Context) (*Prepared, error) {
	p, err := e.draft()
	if err != nil {
		return nil, err
	}
	for _, phase := range preparation {
		if phase.when != nil && !phase.when(e.Options) {
			continue
		}
		if err := phase.do(p, ctx); err != nil {
			p.Close()
			return nil, err
		}
	}
	return p, nil
}

// newPrepared returns a run that begins with the state s and has no machines yet.
func (e *Engine) newPrepared(s *state.State) *Prepared {
	p := &Prepared{
		Decision: decide.Decision{Plan: &plan.Plan{Cluster: e.Config.Name, IsPartial: e.Options.IsPartial()}},
		situation: &decide.Situation{
			Config: e.Config, Options: e.Options, Release: e.Bundle.Release(), Now: e.now, StateDir: e.Store.Dir,
		},
		engine: e,
		session: &session.Session{
			Dial: e.Dial, Files: e.Bundle, Report: e.send, Now: e.now, Held: e.Store.Held,
			Parallelism: e.parallelism(), Run: e.Run, Operator: e.Operator,
		},
		renewals: certificate.Renewals{
			Requested: state.Renewal{Names: e.Renews, Machines: e.RenewOn, Since: e.now()},
		},
	}
	p.session.Steps = p.wantedSteps
	p.setState(s)
	return p
}

// setState makes s the state with which the run begins.
func (p *Prepared) setState(s *state.State) {
	p.State, p.situation.State = s, s
	p.ledger = ledger.New(p.engine.Store, s)
	p.issuer = &certificate.Issuer{Ledger: p.ledger, Now: p.engine.now}
}

// setMachines makes list the machines of the run.
func (p *Prepared) setMachines(list []*session.Machine) {
	p.session.Machines, p.situation.Machines = list, list
}

// Close closes all connections.
func (p *Prepared) Close() { p.session.Close() }
