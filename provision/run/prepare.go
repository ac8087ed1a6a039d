package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"clusterctl/hcl/config"
	"clusterctl/provision/agent"
	"clusterctl/provision/host"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
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
	saveQueue        saveQueue
	unwritten        int // changes of the state that are not yet written
	crlCache         revocationLists
	startTime        time.Time
	renewed          map[string]bool // by name of certificate: whether it is to be renewed
	machines         []*machine
	isNewCluster     bool // there is no cluster yet
	cluster          Cluster
	formerAddresses  map[string]string // former addresses of blocks, by the present addresses of the same machines
	hasRenames       bool              // moved blocks have renamed things in the state
	recreatedObjects []state.Object    // objects that this run has deleted in order to create them again
	refused          RefusedError      // objects that the API refuses
	skipped          []skipped         // machines that were not reached and are left out
	hasRevoked       bool              // this run has revoked certificates of machines that stay
	vanishedObjects  []state.Object    // objects that an interrupted run has removed, still listed in the state
}

// machine is one machine during a run.
type machine struct {
	config.Machine
	agent           Agent
	facts           host.Facts
	turn            *agent.Turn // this run's turn, with the last run on the machine as seen at the first connection
	factsReadAt     time.Time   // when the facts were read, by the operator's clock
	steps           []step.Step
	changes         []step.Change
	action          string
	unreachedReason error // why it was not reached, if it is to be removed or only a plan is wanted
	createsNode     bool  // the machine's node is created by this run
	hasJoinedNow    bool  // the machine has joined in this run

	hasCertificates bool // the steps have their certificates

	sentBytes int64 // bytes of this program that were sent to the machine for planning

	repairError   error // why mend could not repair the machine
	leftOutReason error // why the machine is left out of later stages
}

// Close closes all connections.
func (p *Prepared) Close() {
	for _, m := range p.machines {
		if m.agent != nil {
			_ = m.agent.Close()
		}
	}
}

func (e *Engine) prepare(ctx context.Context) (*Prepared, error) {
	s, err := e.Store.Read()
	if err != nil {
		return nil, err
	}
	p := &Prepared{
		engine:    e,
		startTime: e.now(),
		State:     s,
		Plan:      &plan.Plan{Cluster: e.Config.Name, IsPartial: len(e.Targets)+len(e.Excludes) > 0},
	}
	if s == nil {
		if p.State, err = state.New(e.Config.Name, e.newAuthorities); err != nil {
			return nil, err
		}
	}
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
		if err := p.checkLostMajority(); err != nil {
			p.Close()
			return nil, err
		}
		var gone []string
		for _, m := range p.machines {
			if m.action == plan.Remove && m.unreachedReason != nil || p.hasLostData(m) {
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
	err = p.checkRenewable()
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
		if found := p.describeMembership(ctx); found != "" {
			p.Plan.WaitingChanges = append(p.Plan.WaitingChanges, found)
		}
		p.Plan.WaitingChanges = append(p.Plan.WaitingChanges, DueKeys(p.State)...)
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
	for _, m := range p.machines {
		if m.action == plan.Unreachable {
			errs = append(errs,
				fmt.Errorf("%s (%s:%d): %w", m.Address, m.Source.File, m.Source.Line, m.unreachedReason))
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

// forEach calls do for machines in parallel and returns all errors.
func (p *Prepared) forEach(ctx context.Context, list []*machine, do func(context.Context, *machine) error) error {
	return p.forEachLimited(ctx, p.engine.parallelism(), list, do)
}

// forEachLimited does the same as each, with at most limit machines at a time.
func (p *Prepared) forEachLimited(
	ctx context.Context,
	limit int,
	list []*machine,
	do func(context.Context, *machine) error,
) error {
	var mu sync.Mutex
	var errs []error
	var g errgroup.Group
	g.SetLimit(min(limit, p.engine.parallelism()))
	for _, m := range list {
		g.Go(func() error {
			err := p.engine.Store.Held()
			if err == nil {
				err = do(ctx, m)
			}
			if err != nil && isInterrupted(ctx) { // how each machine reports the interruption is not interesting
				return nil
			}
			if err != nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("%s (%s:%d): %w", m.Address, m.Source.File, m.Source.Line, err))
				mu.Unlock()
			}
			return nil
		})
	}
	_ = g.Wait()
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if isInterrupted(ctx) {
		errs = append(errs, ErrInterrupted)
	}
	return errors.Join(errs...)
}

const factsTimeout = 30 * time.Second

// checkAll checks the steps of all machines.
func (p *Prepared) checkAll(ctx context.Context) error {
	if reached := len(filterMachines(p.machines,
		func(m *machine) bool { return m.unreachedReason == nil })); reached > 0 {
		p.engine.report(Event{Kind: EventPhase, Message: "inspecting " + plan.Number(reached, "machine")})
	}
	return p.forEach(ctx, p.machines, func(ctx context.Context, m *machine) error {
		if m.unreachedReason != nil {
			return nil
		}
		return p.checkMachine(ctx, m)
	})
}

func (p *Prepared) checkMachine(ctx context.Context, m *machine) error {
	var err error
	m.hasCertificates = false
	if m.action == plan.Remove {
		m.steps = role.Clean()
	} else if m.steps, err = p.stepsOf(m); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	m.changes, err = m.agent.Check(ctx, m.steps)
	return hangError(ctx, checkTimeout, err)
}

// hangError returns an error that says that a machine hangs, if ctx's deadline has passed; otherwise it returns err.
func hangError(ctx context.Context, limit time.Duration, err error) error {
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("it hangs: it has not answered for %s: %w", limit, err)
	}
	return err
}

// stepsOf returns a machine's steps. It holds writing, because other machines that finish change the state meanwhile.
func (p *Prepared) stepsOf(m *machine) ([]step.Step, error) {
	stateMu.Lock()
	defer stateMu.Unlock()
	revoked, err := p.currentLists()
	if err != nil {
		return nil, err
	}
	steps, err := role.Steps(
		role.Input{
			Cluster:        p.engine.Config,
			Machine:        m.Machine,
			Facts:          m.facts,
			State:          p.State,
			Files:          p.engine.Bundle,
			Release:        p.engine.Bundle.Release(),
			Revoked:        revoked,
			IsWindowClosed: p.isWindowClosed(),
		},
	)
	p.setRenewalTimes(m, steps)
	return steps, err
}
