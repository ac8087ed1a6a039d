package run

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/run/etcd"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/step"
)

// health asks one machine of the control plane about the health of all of them, including those that this run does not
// reach.
func (p *Prepared) health(ctx context.Context, from *session.Machine) ([]plan.Health, error) {
	return p.healthOf(ctx, from, func(string) bool { return true })
}

func (p *Prepared) healthOf(ctx context.Context, from *session.Machine, which func(name string) bool) ([]plan.Health, error) {
	var list []plan.Health
	var steps []step.Step
	members := role.EtcdMachines(p.engine.Config, p.State)
	for _, m := range p.engine.Config.ControlPlane() {
		if !p.State.Machines[m.Address].HasJoined || !which(m.Name) {
			continue
		}
		_, member := p.State.Etcd[m.Name]
		member = member && slices.ContainsFunc(members, func(e config.Machine) bool { return e.Name == m.Name })
		list = append(list, plan.Health{Name: m.Name, HasMember: member, IsReached: p.session.IsReached(m.Name)})
		steps = append(
			steps,
			&step.ServerHealth{
				Name:   m.Name,
				URL:    "https://" + net.JoinHostPort(m.IP.String(), "6443") + "/readyz",
				Client: role.ServerClient,
			},
		)
		if member {
			steps = append(steps, &step.MemberHealth{Name: m.Name, Store: role.Member(m)})
		}
	}
	changes, err := from.Agent.Check(ctx, steps)
	if err != nil {
		return nil, fmt.Errorf("%s: look at the control plane's health: %w", from.Address, err)
	}
	for i, c := range changes {
		for j := range list {
			switch s := steps[i].(type) {
			case *step.ServerHealth:
				if s.Name == list[j].Name {
					list[j].API = c.Note
				}
			case *step.MemberHealth:
				if s.Name == list[j].Name {
					list[j].Etcd = c.Note
				}
			}
		}
	}
	return list, nil
}

// needsGuard reports whether there are other machines of the control plane whose health matters.
func (p *Prepared) needsGuard() bool {
	return !p.situation.IsNewCluster && len(p.engine.Config.ControlPlane()) > 1
}

// checkMajority fails, before anything is changed, if the changes would cost the control plane its majority.
func (p *Prepared) checkMajority(ctx context.Context) error {
	from := p.situation.SurvivingControl()
	if !p.needsGuard() || from == nil || p.engine.IsDestroy {
		return nil
	}
	changed := p.situation.ControlPlaneOf(p.session.WithAction(plan.Change))
	if !slices.ContainsFunc(changed, func(m *session.Machine) bool { return len(plan.RestartedDaemons(m.Changes)) > 0 }) {
		return nil
	}
	return p.retryJudgement(ctx, from, func(list []plan.Health) error {
		after := p.healthAfterRepair(list, changed)
		for _, m := range changed {
			then := slices.Clone(after)
			for i, own := range list {
				if own.Name == m.Name {
					then[i] = own
				}
			}
			if err := plan.CheckRestart(m.Name, plan.RestartedDaemons(m.Changes), then); err != nil {
				return fmt.Errorf("%s is not changed: %w", m.Address, err)
			}
		}
		return nil
	})
}

// healthAfterRepair returns the health of the control plane after this run has started its dead daemons, and the
// members that have lost their data. Their machines change first, which costs nothing. If one is not well afterwards,
// the others are left unchanged. A daemon that mend could not repair stays unhealthy.
func (p *Prepared) healthAfterRepair(list []plan.Health, changed []*session.Machine) []plan.Health {
	after := slices.Clone(list)
	for _, m := range changed {
		i := slices.IndexFunc(after, func(h plan.Health) bool { return h.Name == m.Name })
		if i < 0 {
			continue
		}
		lost := etcd.HasLostData(p.State, m)
		starts := func(unit string) bool {
			return lost ||
				m.RepairError == nil &&
					slices.ContainsFunc(
						m.Changes,
						func(c step.Change) bool { return c.Kind == "unit" && c.Name == unit && c.IsBroken },
					)
		}
		if starts("etcd.service") {
			after[i].Etcd = ""
		}
		if starts("kube-apiserver.service") {
			after[i].API = ""
		}
	}
	return after
}

// rejoinTimeout is how long a reached machine that may have just come back has to join the others, before its health
// makes a change refused. Its member of the store finds the others some seconds after the network is back.
const rejoinTimeout = 20 * time.Second

// retryJudgement judges the control plane's health. It repeats this for up to rejoinTimeout while judge refuses and a
// machine that this run reaches is unhealthy.
func (p *Prepared) retryJudgement(ctx context.Context, from *session.Machine, judge func([]plan.Health) error) error {
	wait := time.NewTimer(rejoinTimeout)
	defer wait.Stop()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for said := false; ; {
		list, err := p.health(ctx, from)
		if err != nil {
			return err
		}
		refused := judge(list)
		back := p.findReturning(list)
		if refused == nil || back == "" {
			return refused
		}
		if !said {
			said = true
			p.session.Report(
				report.Event{
					Kind:    report.Note,
					Machine: from.Address,
					Message: "waiting for " + back + ", which may be just back",
				},
			)
		}
		select {
		case <-ctx.Done():
			return refused
		case <-wait.C:
			return refused
		case <-tick.C:
		}
	}
}

// findReturning returns the name of a machine of the control plane that this run reaches and that does not work, or "".
func (p *Prepared) findReturning(list []plan.Health) string {
	for _, h := range list {
		if (h.Etcd != "" || h.API != "") && h.IsReached {
			return h.Name
		}
	}
	return ""
}

// changeOneByOne changes machines of the control plane one after another. It changes each only when the others are
// well, and continues only when it is well again.
func (p *Prepared) changeOneByOne(ctx context.Context, control []*session.Machine) error {
	if !p.needsGuard() {
		for _, m := range control {
			if err := p.session.ForEach(ctx, []*session.Machine{m}, p.rollMachine); err != nil {
				return err
			}
		}
		return nil
	}
	var names []string
	byName := map[string]*session.Machine{}
	for _, m := range control {
		names = append(names, m.Name)
		byName[m.Name] = m
	}
	if from := p.situation.SurvivingControl(); from != nil && len(control) > 1 {
		list, err := p.health(ctx, from)
		if err != nil {
			return err
		}
		names = plan.ControlOrder(names, list)
	}
	for i, name := range names {
		restarts := len(plan.RestartedDaemons(byName[name].Changes)) > 0
		if err := p.session.ForEach(ctx, []*session.Machine{byName[name]}, p.guardedRoll); err != nil {
			return err
		}
		if restarts && i < len(names)-1 {
			if err := p.pause(ctx, byName[name]); err != nil {
				return session.ErrInterrupted
			}
		}
	}
	return nil
}

func (p *Prepared) guardedRoll(ctx context.Context, m *session.Machine) error {
	units := plan.RestartedDaemons(m.Changes)
	if m.Action == plan.Change && len(units) > 0 {
		if err := p.retryJudgement(ctx, m,
			func(list []plan.Health) error { return plan.CheckRestart(m.Name, units, list) }); err != nil {
			return fmt.Errorf("it is not changed: %w", err)
		}
	}
	if err := p.rollMachine(ctx, m); err != nil {
		return err
	}
	if len(units) == 0 && m.Action == plan.Change {
		return nil
	}
	return p.awaitRecovery(ctx, m)
}

const recoverTimeout = time.Minute

// awaitRecovery waits until a machine of the control plane is well after its change. Only then may the next one change.
func (p *Prepared) awaitRecovery(ctx context.Context, m *session.Machine) error {
	ctx, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	last := ""
	for {
		list, err := p.healthOf(ctx, m, func(name string) bool { return name == m.Name })
		if err == nil {
			if len(list) == 0 || list[0].Etcd == "" && list[0].API == "" {
				return nil
			}
			last = list[0].Etcd + " " + list[0].API
		} else if last == "" {
			last = err.Error()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf(
				"it was changed and is not well %s later, so the rest of the control plane is left as it is: %s",
				recoverTimeout,
				last,
			)
		case <-tick.C:
		}
	}
}
