package run

import (
	"context"
	"errors"

	"clusterctl/provision/run/certificate"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/health"
	"clusterctl/provision/run/leave"
	"clusterctl/provision/run/ledger"
	"clusterctl/provision/run/objects"
	"clusterctl/provision/run/roll"
	"clusterctl/provision/run/rotation"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// change is a change of a cluster in progress, with the parts that carry it out.
type change struct {
	situation *decide.Situation
	session   *session.Session
	ledger    *ledger.Ledger
	renewals  *certificate.Renewals

	guard   *health.Guard
	roller  *roll.Roller
	leaver  *leave.Leaver
	objects *objects.Applier
	rotator *rotation.Rotator

	groups         machineGroups
	refused        error // the objects that the API refuses, once everything else is done
	hadFormerUsers bool  // a machine had a certificate of a user that former releases shared
}

// machineGroups are the machines of a change by what is done with them.
type machineGroups struct {
	control, nodes, demoted, removed, replaced []*session.Machine
}

// changePhase is a part of a change.
type changePhase struct {
	name string
	when func(*change) bool
	do   func(context.Context, *change) error
}

// changePhases are what a change does, in order. The phases from "encryption" on wait until everything that is declared
// exists.
var changePhases = []changePhase{
	{"claim machines", isNamed, func(ctx context.Context, c *change) error { return c.session.ClaimAll(ctx) }},
	{"admit new users", hasFormerUsers, admitUsers},
	{"repair", always, func(ctx context.Context, c *change) error { return c.roller.RepairAll(ctx) }},
	{"check the majority", always, func(ctx context.Context, c *change) error {
		return c.roller.AddUnrepaired(c.guard.CheckMajority(ctx))
	}},
	{"forget kept blocks", always,
		func(_ context.Context, c *change) error { return forgetKept(c.situation, c.ledger) }},
	{"snapshot", isRisky, snapshotBeforeRisks},
	{"record the start", always, func(_ context.Context, c *change) error {
		return recordStart(c.situation, c.ledger, c.renewals)
	}},
	{"send files", always, func(ctx context.Context, c *change) error { return sendAll(ctx, c.session) }},
	{"remove dead members", always, func(ctx context.Context, c *change) error {
		c.groups = groupMachines(c.situation)
		return c.leaver.RemoveMembers(ctx, c.groups.removed, true)
	}},
	{"keep pods off removed nodes", always, func(ctx context.Context, c *change) error {
		return c.roller.KeepPodsOff(ctx, c.groups.removed)
	}},
	{"machines and objects", always, changeMachinesAndObjects},
	{"encryption", isComplete, func(ctx context.Context, c *change) error { return c.rotator.ChangeEncryption(ctx) }},
	{"demote", isComplete, func(ctx context.Context, c *change) error {
		return c.leaver.DemoteAll(ctx, c.groups.demoted)
	}},
	{"remove", isComplete, func(ctx context.Context, c *change) error {
		return c.leaver.RemoveAll(ctx, c.groups.removed)
	}},
	{"drop former users", isComplete, dropFormerRights},
	{"revoke", isComplete, revoke},
	{"rotate", isComplete, func(ctx context.Context, c *change) error { return c.rotator.Continue(ctx) }},
	{"complete renewals", hasRenewals, func(_ context.Context, c *change) error {
		return c.ledger.Change(func(s *state.State) { dropCompletedRenewals(c.situation, s) })
	}},
}

func always(*change) bool        { return true }
func isNamed(c *change) bool     { return c.session.Run != "" }
func isRisky(c *change) bool     { return len(c.situation.RiskyActions()) > 0 }
func isComplete(c *change) bool  { return c.session.HasAll() }
func hasRenewals(c *change) bool { return isComplete(c) && len(c.situation.State.Renewals) > 0 }

// hasFormerUsers reports whether a machine has a certificate of a user that daemons of former releases shared.
func hasFormerUsers(c *change) (found bool) {
	c.ledger.View(func(s *state.State) { found = certificate.HasFormerUsers(s) })
	return found
}

// run carries out the phases of a change.
func (c *change) run(ctx context.Context) error {
	for _, phase := range changePhases {
		if !phase.when(c) {
			continue
		}
		if err := phase.do(ctx, c); err != nil {
			return errors.Join(c.refused, err)
		}
	}
	return c.refused
}

// newChange returns a change with the parts that carry out the plan.
func (p *Prepared) newChange() *change {
	c := &change{situation: p.situation, session: p.session, ledger: p.ledger, renewals: &p.renewals}
	c.guard = &health.Guard{Session: p.session, Situation: p.situation}
	c.roller = &roll.Roller{Session: p.session, Ledger: p.ledger, Issuer: p.issuer, Situation: p.situation,
		Guard: c.guard, Secrets: p.Secrets}
	c.objects = &objects.Applier{Session: p.session, Ledger: p.ledger, Situation: p.situation, Decision: &p.Decision}
	c.leaver = &leave.Leaver{Session: p.session, Ledger: p.ledger, Situation: p.situation, Guard: c.guard,
		Roller: c.roller, LabelNodes: c.objects.LabelNodes}
	c.rotator = &rotation.Rotator{Session: p.session, Ledger: p.ledger, Situation: p.situation, Roller: c.roller,
		Lists: &p.lists, Plan: p.Plan, Connect: func() (session.Cluster, error) {
			return p.engine.ConnectCluster(p.State, p.engine.Config)
		}}
	return c
}
