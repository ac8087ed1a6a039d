package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"clusterctl/daemons/config/store"
	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// riskyActions returns the actions of this run before which a snapshot of the store is taken: those that remove or
// restart a member, and those that write all values again.
func (p *Prepared) riskyActions() (list []string) {
	if p.isNewCluster || p.engine.IsDestroy || p.engine.IsRefreshOnly || len(p.State.Etcd) == 0 ||
		p.State.Restore != nil { // a snapshot of a store that was just restored exists
		return nil
	}
	for _, m := range p.session.Machines {
		_, member := p.State.Etcd[m.Name]
		if !member || !m.HasRole(config.RoleControlPlane) && !p.isDemoted(m) {
			continue
		}
		switch {
		case p.isDemoted(m), m.Action == plan.Remove:
			list = append(list, "the removal of "+m.Name+"'s member")
		case m.Action == plan.Replace:
			list = append(list, "the replacement of "+m.Name+"'s member")
		case m.Action == plan.Change && slices.Contains(plan.RestartedDaemons(m.Changes), "etcd"):
			list = append(list, "the restart of "+m.Name+"'s member")
		}
	}
	for _, name := range p.rotationNames() {
		if r := p.State.Rotations[name]; r.Phase == state.PhaseTrust || r.IsOver(p.engine.now()) {
			list = append(list, "the replacement of "+name)
		}
	}
	if !p.State.Keys.Encryption.IsUpToDate(p.engine.Config.Encryption) {
		list = append(list, "the change of the encryption key")
	}
	return list
}

// riskLine returns the plan's line about the snapshot, or "" if none is taken.
func riskLine(risks []string) string {
	if len(risks) == 0 {
		return ""
	}
	return "A snapshot of the store is taken before " + summarizeList(risks) + "."
}

func summarizeList(list []string) string {
	const most = 3
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}

// snapshotBeforeRisks takes the snapshot. A store that does not answer is skipped, because the run may be there to
// repair it. A store that answers and cannot take a snapshot stops the run before anything changes.
func (p *Prepared) snapshotBeforeRisks(ctx context.Context) error {
	risks := p.riskyActions()
	if len(risks) == 0 {
		return nil
	}
	if p.engine.SkipsSnapshot {
		p.session.Report(report.Event{Kind: report.Note, Message: "no snapshot of the store is taken, as -no-snapshot says"})
		return nil
	}
	a := &Access{prepared: p.engine.newPrepared(p.State)}
	for _, m := range p.session.Machines {
		if m.Agent != nil && m.UnreachedReason == nil && m.HasRole(config.RoleControlPlane) {
			a.prepared.session.Machines = append(a.prepared.session.Machines, m)
		}
	}
	members, err := a.Status(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil || !HasMajority(members) {
		p.session.Report(report.Event{Kind: report.Note, Message: "no snapshot of the store is taken: it does not answer"})
		return nil
	}
	var errs []error
	for _, name := range DefragOrder(members) { // the leader last, because it has the most to do
		i := slices.IndexFunc(a.prepared.session.Machines, func(m *session.Machine) bool { return m.Name == name })
		if i < 0 || !isAnswering(members, name) {
			continue
		}
		s, notes, err := a.saveSnapshot(ctx, a.prepared.session.Machines[i], "before "+summarizeList(risks))
		if err == nil {
			for _, n := range notes {
				p.session.Report(report.Event{Kind: report.Note, Machine: a.prepared.session.Machines[i].Address, Message: n})
			}
			p.session.Report(
				report.Event{
					Kind:    report.Note,
					Machine: a.prepared.session.Machines[i].Address,
					Message: fmt.Sprintf(
						"snapshot of the store: %s, revision %d, %d keys",
						a.Path(s.Name),
						s.Revision,
						s.Keys,
					),
				},
			)
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf(
		"nothing is changed: a snapshot of the store has to be taken before %s, and cannot be: %w. Mend that, or go "+
			"on without one: -no-snapshot",
		summarizeList(risks),
		errors.Join(errs...),
	)
}

func isAnswering(members []store.Member, name string) bool {
	return slices.ContainsFunc(
		members,
		func(m store.Member) bool { return m.Name == name && m.Error == "" && !m.Learner },
	)
}
