package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"clusterctl/hcl/config"
	"clusterctl/provision/agent"
	"clusterctl/provision/plan"
)

// mend repairs what does not work, on all machines at once and before anything else: expired or untrusted certificates
// and dead units. Machines that change one after another, each waiting for the others to be well, could never recover
// from certificates that have expired everywhere. What cannot be repaired is reported, and is met again when the
// machine changes. Whether the run may continue then depends on the health of the control plane.
func (p *Prepared) mend(ctx context.Context) error {
	if p.fresh {
		return nil
	}
	var list []*machine
	for _, m := range p.with(plan.Change) {
		if len(plan.Mending(m.steps, m.changes)) > 0 {
			list = append(list, m)
		}
	}
	return p.each(ctx, list, p.mendOne)
}

func (p *Prepared) mendOne(ctx context.Context, m *machine) error {
	part := m.only(plan.Mending(m.steps, m.changes))
	p.begin(m, "mending")
	err := p.send(ctx, part)
	if err == nil {
		err = p.issue(part)
	}
	if err == nil {
		err = m.agent.Apply(ctx, part.steps, func(done agent.Progress) {
			c := done.Change
			p.engine.say(Event{Kind: EventStep, Machine: m.Address, Change: &c})
		})
	}
	if err != nil && ctx.Err() == nil {
		m.unmended = err
		p.engine.say(Event{Kind: EventNote, Machine: m.Address, Message: "not all of it is mended: " + err.Error()})
	}
	if errors.Is(err, agent.ErrHangs) {
		return p.aside(ctx, m, err)
	}
	if errors.Is(err, agent.ErrLost) {
		return p.aside(ctx, m, p.again(ctx, m, 1))
	}
	return p.aside(ctx, m, p.checkOne(ctx, m)) // the repairs decide what is left to do
}

// mendedFirst describes what will be mended on a machine before other changes, or returns "".
func (p *Prepared) mendedFirst(m *machine) string {
	if p.fresh {
		return ""
	}
	return plan.MendLine(plan.Mending(m.steps, m.changes), m.steps, m.changes)
}

// only returns a copy of a machine with some of its steps.
func (m *machine) only(which []int) *machine {
	part := *m
	part.steps, part.changes = nil, nil
	for _, i := range which {
		part.steps, part.changes = append(part.steps, m.steps[i]), append(part.changes, m.changes[i])
	}
	return &part
}

// unmended adds to err what could not be mended on machines of the control plane.
func (p *Prepared) unmended(err error) error {
	var why []string
	for _, m := range p.machines {
		if m.unmended != nil && m.Has(config.RoleControlPlane) {
			why = append(why, fmt.Sprintf("%s: %v", m.Address, m.unmended))
		}
	}
	if err == nil || len(why) == 0 {
		return err
	}
	slices.Sort(why)
	return fmt.Errorf("%w\nWhat could not be mended before:\n%s", err, strings.Join(why, "\n"))
}
