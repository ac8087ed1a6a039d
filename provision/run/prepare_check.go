package run

import (
	"context"
	"slices"
	"strings"

	"clusterctl/provision/plan"
	"clusterctl/provision/run/certificate"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/etcd"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// checkMachines checks the steps of all machines.
func (p *Prepared) checkMachines(ctx context.Context) error {
	reached := session.Filter(p.session.Machines,
		func(m *session.Machine) bool { return m.UnreachedReason == nil })
	if len(reached) > 0 {
		p.session.Report(
			report.Event{Kind: report.Phase, Message: "inspecting " + plan.Number(len(reached), "machine")})
	}
	return p.session.ForEach(ctx, reached, p.session.Check)
}

// checkChange returns an error if the machines cannot take the change that the checks have found.
func (p *Prepared) checkChange(context.Context) error {
	if !p.engine.IsDestroy {
		if err := p.situation.CheckSpace(); err != nil {
			return err
		}
	}
	if err := p.renewals.Check(p.session.Machines); err != nil {
		return err
	}
	return p.situation.CheckReleases()
}

// summarize adds to the plan what happens to machines, authorities and keys.
func (p *Prepared) summarize(ctx context.Context) error {
	p.situation.Summarize(p.Plan)
	if p.engine.IsPlanOnly {
		p.Plan.ProgramSentTo = decide.ProgramReceivers(p.session.Machines)
	}
	if !p.engine.IsDestroy {
		p.Plan.Rotations = p.situation.PlanRotations(p.formerHolders)
	}
	waiting := append(p.Plan.WaitingChanges, decide.ForeignFiles(p.session.Machines)...)
	if !p.engine.IsDestroy {
		if found := etcd.DescribeMembership(ctx, p.engine.Config, p.State, p.session.Machines); found != "" {
			waiting = append(waiting, found)
		}
		waiting = append(waiting, certificate.DueKeys(p.State)...)
	}
	p.Plan.WaitingChanges = waiting
	return nil
}

// formerHolders names the holders of kubeconfigs that stop working without the former cluster CA. If the list cannot be
// read, the plan shows the error instead.
func (p *Prepared) formerHolders() string {
	handed, err := state.IssuedKubeconfigs(p.engine.Store.Dir)
	if err != nil {
		return "; " + err.Error()
	}
	var names []string
	for _, h := range p.State.DependOnFormerCA(handed, p.engine.now()) {
		if !slices.Contains(names, h.Name) {
			names = append(names, h.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return "; kubeconfigs that need it were issued for " + strings.Join(names, ", ")
}
