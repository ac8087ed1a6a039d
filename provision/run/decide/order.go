package decide

import (
	"slices"
	"strings"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/session"
	"clusterctl/provision/step"
)

// Stages returns the order in which a run carries out a plan. A plan that Apply would refuse has no stages.
func (p *Situation) Stages(of *plan.Plan) (list []plan.Stage) {
	if of.IsEmpty() && !of.IsPending || len(of.Unreached()) > 0 {
		return nil
	}
	add := func(title string, atOnce int, machines []*session.Machine) {
		if len(machines) == 0 {
			return
		}
		s := plan.Stage{Title: title, Parallelism: atOnce}
		for _, m := range machines {
			s.Machines = append(s.Machines, m.Address)
		}
		list = append(list, s)
	}
	if p.Options.IsDestroy {
		add("Clean the machines", 0, p.Machines)
		return list
	}
	active, removed := p.WithAction(plan.Create, plan.Change), p.WithAction(plan.Remove)
	add("Send programs and images to the machines; nothing restarts", 0,
		session.Filter(active, func(m *session.Machine) bool {
			return slices.ContainsFunc(m.Changes, func(c step.Change) bool { return c.Needs != "" })
		}))
	add("Remove the etcd members of machines that do not answer", 1, session.Filter(removed,
		func(m *session.Machine) bool { return m.UnreachedReason != nil && m.HasRole(config.RoleControlPlane) }))
	control := p.ControlPlaneOf(active)
	add("Change the control plane, broken machines first, each while the others are healthy", 1, control)
	objects := objectStage(of)
	bring := func() {
		if objects.Objects > 0 {
			list = append(list, objects)
		}
	}
	demoted := session.Filter(active, p.IsDemoted)
	together, ahead, rolled := p.SplitNodes(session.Filter(active,
		func(m *session.Machine) bool { return !slices.Contains(control, m) && !slices.Contains(demoted, m) }))
	if p.IsNewCluster {
		add("Set up all machines", 0, together)
		bring()
	} else {
		bring()
		add("Set up new machines, and change machines on which no daemon restarts", 0, together)
	}
	first := "Change one node to the new release"
	if !slices.ContainsFunc(ahead, p.ChangesRelease) {
		first = "Repair the programs of one node"
	}
	add(first, 1, ahead)
	add("Change nodes on which daemons restart", p.DrainBudget(), rolled)
	add("Replace machines: drain, clean and set up again", 1, p.WithAction(plan.Replace))
	add("Remove machines from the control plane: first the etcd member, then its files", 1, demoted)
	add("Remove machines: drain and clean", 1, removed)
	var names []string
	for _, r := range of.Rotations {
		if r.Action != plan.None {
			names = append(names, r.Name)
		}
	}
	if len(names) > 0 {
		list = append(list, plan.Stage{Title: "Replace authorities and keys: " + strings.Join(names, ", ")})
	}
	return list
}

// SplitNodes divides machines that do not belong to an existing control plane. New machines, and those on which nothing
// restarts, change all at once. The others change within the budget. With a new release one of them goes ahead, so that
// a release that does not work breaks one machine only.
func (p *Situation) SplitNodes(list []*session.Machine) (together, ahead, rolled []*session.Machine) {
	for _, m := range list {
		if m.Action == plan.Change && !p.IsNewCluster && m.HasRole(config.RoleNode) &&
			len(plan.RestartedDaemons(m.Changes)) > 0 {
			rolled = append(rolled, m)
		} else {
			together = append(together, m)
		}
	}
	if slices.ContainsFunc(rolled, HasUpdate) {
		ahead, rolled = rolled[:1], rolled[1:]
	}
	return together, ahead, rolled
}

// DrainBudget returns how many nodes whose daemons restart may change at the same time.
func (p *Situation) DrainBudget() int {
	return plan.Budget(p.Config.Roll.MaxUnavailable, countRole(p.Config, config.RoleNode))
}

// countRole returns the number of declared machines that have a role.
func countRole(c *config.Cluster, role string) (n int) {
	for _, m := range c.Machines {
		if m.HasRole(role) {
			n++
		}
	}
	return n
}

// objectStage returns the stage that applies the objects of a plan.
func objectStage(of *plan.Plan) plan.Stage {
	stage := plan.Stage{
		Title:      "Apply objects as soon as an API server answers",
		Objects:    of.AwaitedObjects,
		InParallel: true,
	}
	for _, o := range of.Objects {
		if o.Action != plan.None && o.Action != plan.Refused {
			stage.Objects++
		}
	}
	return stage
}
