package run

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/certificate"
	"clusterctl/provision/run/session"
	"clusterctl/provision/step"
)

// summarize builds the plan from the results of the checks.
func (p *Prepared) summarize() {
	var next time.Time
	for _, m := range p.session.Machines {
		entry := plan.Machine{Address: m.Address, Action: m.Action, Note: plan.Describe(m.Facts)}
		for _, c := range m.Changes {
			if c.Action != "" {
				entry.Changes = append(entry.Changes, c)
			}
		}
		if c := certificate.RevocationChange(p.State.Machines[m.Address], m.Steps, p.engine.now()); c != nil &&
			m.UnreachedReason == nil && m.Action == plan.Change {
			entry.Changes = append(entry.Changes, *c)
		}
		switch {
		case m.UnreachedReason != nil && (m.Action != plan.Remove || p.engine.IsDestroy):
			entry.Action, entry.Note = plan.Unreachable, m.UnreachedReason.Error()
		case m.UnreachedReason != nil:
			entry.Note = "not cleaned, the cluster is rid of it without it: " + m.UnreachedReason.Error()
		case m.Action == plan.Remove:
			entry.Note = "drain, then clean"
			if p.engine.IsDestroy {
				entry.Note = "clean"
			}
		case m.Action == plan.Change && p.engine.isReplaced(m.Address):
			entry.Action, entry.Note = plan.Replace, "drain and clean it, then make it anew"
		case p.wasDrained(m):
			entry.Note = "takes pods again, after a run that was cut off"
			entry.Changes = append(
				entry.Changes,
				step.Change{Action: step.Update, Kind: "node", Name: m.Name, Note: "uncordon"},
			)
		case len(entry.Changes) == 0 && p.State.Machines[m.Address].HasJoined:
			if entry.Action = plan.None; p.formerAddresses[m.Address] != "" {
				entry.Action, entry.Note = plan.Move, "nothing changes on it"
			}
		case p.isDemoted(m):
			entry.Note = "leaves the control plane: its API server stops, its member leaves the store, its keys are " +
				"removed; " + p.describeRestarts(
				m,
				entry.Changes,
			)
		case m.Action == plan.Change:
			entry.Note = p.describeRestarts(m, entry.Changes)
			if update := p.updateLine(m, &entry); update != "" {
				entry.Note = update + "; " + entry.Note
			}
			if first := p.describeRepairs(m); first != "" {
				entry.Note = first + "; then " + entry.Note
			}
		}
		if t := m.Facts.CertExpiry; m.Action == plan.Change && !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
		if was := p.formerAddresses[m.Address]; was != "" {
			entry.From = was
			entry.Note = "was " + was + "; " + entry.Note
		}
		if was := p.State.Machines[m.Address].Machine.IP; m.Action == plan.Change && was != m.IP {
			entry.Note = fmt.Sprintf("its address was %s; %s", was, entry.Note)
		}
		m.Action = entry.Action
		p.Plan.Machines = append(p.Plan.Machines, entry)
	}
	if !p.engine.IsDestroy {
		unreached := slices.DeleteFunc(slices.Clone(p.session.Machines), func(m *session.Machine) bool {
			return m.UnreachedReason == nil || m.Action == plan.Remove || !m.HasRole(config.RoleControlPlane)
		})
		p.Plan.Etcd = plan.DescribeEtcd(p.engine.Config, p.State, len(unreached))
		p.Plan.Certificates = plan.DescribeCertificates(next, p.engine.now())
		p.Plan.Snapshot = riskLine(p.riskyActions())
	}
}

// foreignFiles returns a line for each file with an effect on a machine that clusterctl did not write.
func (p *Prepared) foreignFiles() (list []string) {
	for _, m := range p.session.Machines {
		for _, c := range m.Changes {
			if c.Kind == step.ForeignFiles {
				list = append(list, fmt.Sprintf("%s: %s: clusterctl did not write this file, and %s. It stays.",
					m.Address, c.Name, c.Note))
			}
		}
	}
	slices.Sort(list)
	return list
}

// programReceivers names the machines to which this program was sent for planning. It returns "" if there are none.
func (p *Prepared) programReceivers() string {
	var names []string
	var bytes int64
	for _, m := range p.session.Machines {
		if m.SentBytes > 0 {
			names, bytes = append(names, m.Address), m.SentBytes
		}
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("clusterctl was sent to %s in order to plan: %s. Apply uses it there. It has %d MB in %s, "+
		"until apply updates or removes the machine.",
		plan.Number(len(names), "machine"), strings.Join(names, ", "), (bytes+999_999)/1_000_000, host.LibraryDir)
}

// describeRestarts describes what a change restarts on a machine, and what that means for its pods.
func (p *Prepared) describeRestarts(m *session.Machine, changes []step.Change) string {
	units := plan.RestartedDaemons(changes)
	if len(units) == 0 {
		return "no restart"
	}
	text := "restart " + strings.Join(units, ", ")
	if slices.Equal(units, []string{plan.WholeMachine}) {
		text = p.rebootLine(changes)
	}
	if why := plan.DrainReason(changes); why != "" && m.HasRole(config.RoleNode) {
		text = "drain, since " + why + "; " + text
	}
	if known := p.State.Machines[m.Address]; m.HasNoCluster() && known.HasJoined && known.Identity != m.Facts.Identity &&
		m.HasRole(config.RoleNode) {
		text = "it was installed anew: the Node of the former machine is deleted, with its pods; " + text
	}
	return text
}
