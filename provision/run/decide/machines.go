package decide

import (
	"path"
	"slices"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/session"
	"clusterctl/provision/step"
)

// IsDemoted reports whether a machine leaves the control plane and stays in the cluster.
func (p *Situation) IsDemoted(m *session.Machine) bool {
	return m.Action == plan.Change && !m.HasRole(config.RoleControlPlane) &&
		p.State.Machines[m.Address].Machine.HasRole(config.RoleControlPlane)
}

// ControlPlaneOf returns the machines in list that belong to the control plane of an existing cluster.
func (p *Situation) ControlPlaneOf(list []*session.Machine) (control []*session.Machine) {
	for _, m := range list {
		if m.HasRole(config.RoleControlPlane) && !p.IsNewCluster {
			control = append(control, m)
		}
	}
	return control
}

// SurvivingControl returns a machine of the control plane that existed before this run and stays.
func (p *Situation) SurvivingControl() *session.Machine {
	for _, m := range p.Machines {
		if m.Agent != nil && m.HasRole(config.RoleControlPlane) &&
			(m.Action == plan.None || m.Action == plan.Change || p.State.Machines[m.Address].HasJoined &&
				m.Action != plan.Remove) {
			return m
		}
	}
	return nil
}

// UpgradesAPIServer reports whether the plan installs another API server, which may know more kinds than the running
// one.
func (p *Situation) UpgradesAPIServer() bool {
	return slices.ContainsFunc(p.Machines, func(m *session.Machine) bool {
		return m.Action == plan.Change && m.HasRole(config.RoleControlPlane) &&
			slices.ContainsFunc(m.Changes, func(c step.Change) bool {
				return c.Kind == "link" && path.Base(c.Name) == "kube-apiserver"
			})
	})
}
