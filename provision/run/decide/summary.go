package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/certificate"
	"clusterctl/provision/run/session"
	"clusterctl/provision/step"
)

// Summarize adds to a plan what the checks of the machines have found, and sets the action of each machine.
func (p *Situation) Summarize(to *plan.Plan) {
	var next time.Time
	for _, m := range p.Machines {
		entry := describer{p}.entry(m)
		if t := m.Facts.CertExpiry; m.Action == plan.Change && !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
		m.Action = entry.Action
		to.Machines = append(to.Machines, entry)
	}
	if p.Options.IsDestroy {
		return
	}
	unreached := session.Filter(p.Machines, func(m *session.Machine) bool {
		return m.UnreachedReason != nil && m.Action != plan.Remove && m.HasRole(config.RoleControlPlane)
	})
	to.Etcd = plan.DescribeEtcd(p.Config, p.State, len(unreached))
	to.Certificates = plan.DescribeCertificates(next, p.Now())
	to.Snapshot = riskLine(p.RiskyActions())
}

// describer describes what happens to machines.
type describer struct{ *Situation }

// entry returns the plan's entry for a machine.
func (p describer) entry(m *session.Machine) plan.Machine {
	entry := plan.Machine{Address: m.Address, Action: m.Action, Note: plan.Describe(m.Facts)}
	entry.Changes = plan.WithAction(m.Changes)
	if c := certificate.RevocationChange(p.State.Machines[m.Address], m.Steps, p.Now()); c != nil &&
		m.UnreachedReason == nil && m.Action == plan.Change {
		entry.Changes = append(entry.Changes, *c)
	}
	p.describe(m, &entry)
	if before := p.FormerAddresses[m.Address]; before != "" {
		entry.From = before
		entry.Note = "was " + before + "; " + entry.Note
	}
	if before := p.State.Machines[m.Address].Machine.IP; m.Action == plan.Change && before != m.IP {
		entry.Note = fmt.Sprintf("its address was %s; %s", before, entry.Note)
	}
	return entry
}

// describe sets the action of an entry and its note, which describes what the run does to the machine.
func (p describer) describe(m *session.Machine, entry *plan.Machine) {
	switch {
	case m.UnreachedReason != nil && (m.Action != plan.Remove || p.Options.IsDestroy):
		entry.Action, entry.Note = plan.Unreachable, m.UnreachedReason.Error()
	case m.UnreachedReason != nil:
		entry.Note = "not cleaned, the cluster is rid of it without it: " + m.UnreachedReason.Error()
	case m.Action == plan.Remove:
		entry.Note = "drain, then clean"
		if p.Options.IsDestroy {
			entry.Note = "clean"
		}
	case m.Action == plan.Change && p.Options.IsReplaced(m.Address):
		entry.Action, entry.Note = plan.Replace, "drain and clean it, then create it again"
	case p.wasDrained(m):
		entry.Note = "takes pods again, after an interrupted run"
		entry.Changes = append(entry.Changes,
			step.Change{Action: step.Update, Kind: "node", Name: m.Name, Note: "uncordon"})
	case len(entry.Changes) == 0 && p.State.Machines[m.Address].HasJoined:
		if entry.Action = plan.None; p.FormerAddresses[m.Address] != "" {
			entry.Action, entry.Note = plan.Move, "nothing changes on it"
		}
	case p.IsDemoted(m):
		entry.Note = "leaves the control plane: its API server stops, its member leaves the store, its keys are " +
			"removed; " + p.describeRestarts(m, entry.Changes)
	case m.Action == plan.Change:
		entry.Note = p.describeRestarts(m, entry.Changes)
		if update := p.updateLine(m, entry); update != "" {
			entry.Note = update + "; " + entry.Note
		}
		if first := p.describeRepairs(m); first != "" {
			entry.Note = first + "; then " + entry.Note
		}
	}
}

// describeRestarts describes what a change restarts on a machine, and what that means for its pods.
func (p describer) describeRestarts(m *session.Machine, changes []step.Change) string {
	units := plan.RestartedDaemons(changes)
	if len(units) == 0 {
		return "no restart"
	}
	text := "restart " + strings.Join(units, ", ")
	if slices.Equal(units, []string{plan.WholeMachine}) {
		text = p.rebootLine(changes)
	}
	if reason := plan.DrainReason(changes); reason != "" && m.HasRole(config.RoleNode) {
		text = "drain, since " + reason + "; " + text
	}
	if recorded := p.State.Machines[m.Address]; m.HasNoCluster() && recorded.HasJoined &&
		recorded.Identity != m.Facts.Identity &&
		m.HasRole(config.RoleNode) {
		text = "it was reinstalled: the Node of the former machine is deleted, with its pods; " + text
	}
	return text
}

// describeRepairs describes what will be mended on a machine before other changes, or returns "".
func (p describer) describeRepairs(m *session.Machine) string {
	if p.IsNewCluster {
		return ""
	}
	steps := plan.RepairSteps(m.Steps, m.Changes, p.State.Machines[m.Address].Issued)
	return plan.DescribeRepairs(steps, m.Steps, m.Changes)
}

// wasDrained reports whether an earlier run has drained a machine and was interrupted before it uncordoned it.
func (p describer) wasDrained(m *session.Machine) bool {
	return p.State.Machines[m.Address].IsCordoned && slices.Contains([]string{plan.Change, plan.Create}, m.Action)
}
