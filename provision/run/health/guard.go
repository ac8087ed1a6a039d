// Package health judges the health of the control plane, so that a run never costs it its majority.
package health

import (
	"context"
	"fmt"
	"slices"
	"time"

	"clusterctl/provision/plan"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/etcd"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/step"
)

// Guard judges the health of the control plane before and after changes.
type Guard struct {
	Session   *session.Session
	Situation *decide.Situation
}

// IsNeeded reports whether there are other machines of the control plane whose health matters.
func (g *Guard) IsNeeded() bool {
	return !g.Situation.IsNewCluster && len(g.Situation.Config.ControlPlane()) > 1
}

// CheckMajority fails, before anything is changed, if the changes would cost the control plane its majority.
func (g *Guard) CheckMajority(ctx context.Context) error {
	from := g.Situation.SurvivingControl()
	if !g.IsNeeded() || from == nil || g.Situation.Options.IsDestroy {
		return nil
	}
	changed := g.Situation.ControlPlaneOf(g.Session.WithAction(plan.Change))
	if !slices.ContainsFunc(changed,
		func(m *session.Machine) bool { return len(plan.RestartedDaemons(m.Changes)) > 0 }) {
		return nil
	}
	return g.Judge(ctx, from, func(list []plan.Health) error {
		after := g.healthAfterRepair(list, changed)
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
func (g *Guard) healthAfterRepair(list []plan.Health, changed []*session.Machine) []plan.Health {
	after := slices.Clone(list)
	for _, m := range changed {
		i := slices.IndexFunc(after, func(h plan.Health) bool { return h.Name == m.Name })
		if i < 0 {
			continue
		}
		lost := etcd.HasLostData(g.Situation.State, m)
		starts := func(unit string) bool {
			return lost ||
				m.RepairError == nil &&
					slices.ContainsFunc(m.Changes,
						func(c step.Change) bool { return c.Kind == "unit" && c.Name == unit && c.IsBroken })
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

// Judge judges the control plane's health. It repeats this for up to rejoinTimeout while judge refuses and a
// machine that this run reaches is unhealthy.
func (g *Guard) Judge(ctx context.Context, from *session.Machine, judge func([]plan.Health) error) error {
	wait := time.NewTimer(rejoinTimeout)
	defer wait.Stop()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for isReported := false; ; {
		list, err := g.Health(ctx, from)
		if err != nil {
			return err
		}
		refused := judge(list)
		back := g.findReturning(list)
		if refused == nil || back == "" {
			return refused
		}
		if !isReported {
			isReported = true
			g.Session.Report(
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
func (g *Guard) findReturning(list []plan.Health) string {
	for _, h := range list {
		if (h.Etcd != "" || h.API != "") && h.IsReached {
			return h.Name
		}
	}
	return ""
}

const recoverTimeout = time.Minute

// AwaitRecovery waits until a machine of the control plane is healthy after its change. The next machine may change
// then.
func (g *Guard) AwaitRecovery(ctx context.Context, m *session.Machine) error {
	ctx, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	last := ""
	for {
		list, err := g.healthOf(ctx, m, func(name string) bool { return name == m.Name })
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
			return fmt.Errorf("it was changed and is not well %s later, so the rest of the control plane is "+
				"left as it is: %s", recoverTimeout, last)
		case <-tick.C:
		}
	}
}
