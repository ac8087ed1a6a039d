package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/run/certificate"
	"clusterctl/provision/run/etcd"
	"clusterctl/provision/run/ledger"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// Prepared is a plan with the open connections to carry it out.
type Prepared struct {
	Plan  *plan.Plan
	State *state.State

	// Secrets are the sensitive values of this configuration and of those that were applied before.
	Secrets []string

	engine           *Engine
	session          *session.Session
	ledger           *ledger.Ledger
	lists            certificate.RevocationLists
	issuer           *certificate.Issuer
	renewals         certificate.Renewals
	isNewCluster     bool              // there is no cluster yet
	formerAddresses  map[string]string // former addresses of blocks, by the present addresses of the same machines
	hasRenames       bool              // moved blocks have renamed things in the state
	recreatedObjects []state.Object    // objects that this run has deleted in order to create them again
	refused          RefusedError      // objects that the API refuses
	skipped          []skipped         // machines that were not reached and are left out
	hasRevoked       bool              // this run has revoked certificates of machines that stay
	vanishedObjects  []state.Object    // objects that an interrupted run has removed, still listed in the state
}

// Close closes all connections.
func (p *Prepared) Close() { p.session.Close() }

// newPrepared returns a run that begins with the state s and has no machines yet.
func (e *Engine) newPrepared(s *state.State) *Prepared {
	p := &Prepared{
		State:  s,
		Plan:   &plan.Plan{},
		engine: e,
		ledger: ledger.New(e.Store, s),
		session: &session.Session{
			Dial: e.Dial, Files: e.Bundle, Report: e.send, Now: e.now, Held: e.Store.Held,
			Parallelism: e.parallelism(), Run: e.Run, Operator: e.Operator,
		},
		renewals: certificate.Renewals{
			Requested: state.Renewal{Names: e.Renews, Machines: e.RenewOn, Since: e.now()},
		},
	}
	p.issuer = &certificate.Issuer{Ledger: p.ledger, Now: e.now}
	p.session.Steps = p.wantedSteps
	return p
}

func (e *Engine) prepare(ctx context.Context) (*Prepared, error) {
	s, err := e.Store.Read()
	if err != nil {
		return nil, err
	}
	if s == nil {
		if s, err = state.New(e.Config.Name, e.newAuthorities); err != nil {
			return nil, err
		}
	}
	p := e.newPrepared(s)
	p.Plan = &plan.Plan{Cluster: e.Config.Name, IsPartial: len(e.Targets)+len(e.Excludes) > 0}
	if r := p.State.Restore; r != nil && !r.HasFirstMember && !e.IsDestroy {
		return nil, fmt.Errorf(
			"a restore of the store from %s, begun %s, was cut off: run clusterctl etcd snapshot restore again, "+
				"which begins it anew",
			r.Snapshot,
			r.Began.UTC().Format(time.RFC3339),
		)
	}
	if p.State.Cluster != e.Config.Name {
		return nil, fmt.Errorf(
			"the state in %s is of cluster %q, the configuration is of %q: a cluster cannot be renamed; declare the "+
				"new one in a folder of its own",
			e.Store.Dir,
			p.State.Cluster,
			e.Config.Name,
		)
	}
	if err := plan.CheckUnchangeable(e.Config, p.State.Fixed); err != nil && !e.IsDestroy {
		return nil, err
	}
	for _, i := range e.Config.Images {
		if _, err := e.Bundle.Add(i.Reference, i.Archive); err != nil {
			return nil, fmt.Errorf("image.%s: %w", i.Name, err)
		}
	}
	p.Secrets = union(e.Config.Secrets, p.State.Keys.Secrets)
	p.isNewCluster = !p.hasStarted()
	if e.IsRefreshOnly {
		if err := p.planRefresh(ctx); err != nil {
			p.Close()
			return nil, err
		}
		return p, nil
	}
	if !e.IsDestroy {
		if err := p.State.Keys.Encryption.Add(e.Config.Encryption, p.isNewCluster); err != nil {
			return nil, fmt.Errorf("make a key for what is stored: %w", err)
		}
	}
	if err := p.applyMoves(); err != nil {
		return nil, err
	}
	if err := p.renameMachines(); err != nil {
		return nil, err
	}
	if err := p.planForgets(); err != nil {
		return nil, err
	}
	p.chooseMachines()
	if err := p.checkSelection(); err != nil {
		return nil, err
	}
	if err := p.checkDestroyable(); err != nil {
		return nil, err
	}
	if err := p.checkReplaceable(); err != nil {
		return nil, err
	}
	if err := p.connect(ctx); err != nil {
		p.Close()
		return nil, err
	}
	if !e.IsDestroy {
		if err := etcd.CheckLostMajority(p.State, p.session.Machines); err != nil {
			p.Close()
			return nil, err
		}
		var gone []string
		for _, m := range p.session.Machines {
			if m.Action == plan.Remove && m.UnreachedReason != nil || etcd.HasLostData(p.State, m) {
				gone = append(gone, m.Name)
			}
		}
		plan.DecideMembers(e.Config, p.State, gone)
	}
	err = p.checkAll(ctx)
	if err == nil && !e.IsDestroy {
		err = p.checkSpace()
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	err = p.renewals.Check(p.session.Machines)
	if err == nil {
		err = p.checkReleases()
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	p.summarize()
	if e.IsPlanOnly {
		p.Plan.ProgramSentTo = p.programReceivers()
	}
	p.planRotations()
	p.Plan.WaitingChanges = append(p.Plan.WaitingChanges, p.foreignFiles()...)
	if !e.IsDestroy {
		if found := etcd.DescribeMembership(ctx, e.Config, p.State, p.session.Machines); found != "" {
			p.Plan.WaitingChanges = append(p.Plan.WaitingChanges, found)
		}
		p.Plan.WaitingChanges = append(p.Plan.WaitingChanges, certificate.DueKeys(p.State)...)
	}
	err = p.compareObjects(ctx)
	if err == nil {
		err = p.checkProtected()
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	p.Plan.Stages = p.stages()
	return p, nil
}

// Unreached returns why a plan is incomplete, or nil if it is complete.
func (p *Prepared) Unreached() error {
	var errs []error
	for _, m := range p.session.Machines {
		if m.Action == plan.Unreachable {
			errs = append(errs,
				fmt.Errorf("%s (%s:%d): %w", m.Address, m.Source.File, m.Source.Line, m.UnreachedReason))
		}
	}
	if p.Plan.CompareError != "" {
		errs = append(
			errs,
			fmt.Errorf(
				"objects could not be compared with what is there, so the plan is not whole; apply mends the "+
					"machines first, and compares then: %s",
				p.Plan.CompareError,
			),
		)
	}
	if len(p.refused.List) > 0 {
		errs = append(errs, p.refused)
	}
	if len(p.Plan.Unreached()) > 0 {
		errs = append(
			errs,
			errors.New(
				"so the plan is not whole, and apply would refuse it: bring back what is not reached, or leave it "+
					"out with -exclude, or nodes with -skip-unreachable",
			),
		)
	}
	return errors.Join(errs...)
}

// hasStarted reports whether a machine of the control plane has joined in an earlier run. Until then, all members of
// the new store must start at once.
func (p *Prepared) hasStarted() bool {
	for _, m := range p.State.Machines {
		if m.HasJoined && m.Machine.HasRole(config.RoleControlPlane) {
			return true
		}
	}
	return false
}

// checkAll checks the steps of all machines.
func (p *Prepared) checkAll(ctx context.Context) error {
	if reached := len(session.Filter(p.session.Machines,
		func(m *session.Machine) bool { return m.UnreachedReason == nil })); reached > 0 {
		p.session.Report(report.Event{Kind: report.Phase, Message: "inspecting " + plan.Number(reached, "machine")})
	}
	return p.session.ForEach(ctx, p.session.Machines, func(ctx context.Context, m *session.Machine) error {
		if m.UnreachedReason != nil {
			return nil
		}
		return p.session.Check(ctx, m)
	})
}

// wantedSteps returns the steps that this run takes on a machine.
func (p *Prepared) wantedSteps(m *session.Machine) ([]step.Step, error) {
	if m.Action == plan.Remove {
		return role.Clean(), nil
	}
	return p.stepsOf(m)
}

// stepsOf returns the steps that make a machine as declared. It holds the ledger, because other machines that finish
// change the state meanwhile.
func (p *Prepared) stepsOf(m *session.Machine) (steps []step.Step, err error) {
	p.ledger.View(func(s *state.State) { steps, err = p.stepsByState(s, m) })
	return steps, err
}

func (p *Prepared) stepsByState(s *state.State, m *session.Machine) ([]step.Step, error) {
	revoked, err := p.lists.Current(s, p.engine.now())
	if err != nil {
		return nil, err
	}
	steps, err := role.Steps(
		role.Input{
			Cluster:        p.engine.Config,
			Machine:        m.Machine,
			Facts:          m.Facts,
			State:          s,
			Files:          p.engine.Bundle,
			Release:        p.engine.Bundle.Release(),
			Revoked:        revoked,
			IsWindowClosed: p.isWindowClosed(),
		},
	)
	p.renewals.SetTimes(s, m.Machine, steps)
	return steps, err
}
