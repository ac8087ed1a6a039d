package decide

import (
	"maps"
	"slices"
	"strings"

	"clusterctl/certs"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// RotationNames returns the names of the authorities and keys that are being replaced.
func RotationNames(s *state.State) []string { return slices.Sorted(maps.Keys(s.Rotations)) }

// RemainingCluster returns all machines that stay in the cluster, and the addresses of those that this run does not
// reach.
func (p *Situation) RemainingCluster() (list []*session.Machine, missing []string) {
	for _, address := range slices.Sorted(maps.Keys(p.State.Machines)) {
		i := slices.IndexFunc(p.Machines, func(m *session.Machine) bool { return m.Address == address })
		switch {
		case i >= 0 && p.Machines[i].Action == plan.Remove:
		case i < 0 || p.Machines[i].Agent == nil || p.Machines[i].UnreachedReason != nil:
			missing = append(missing, address)
		default:
			list = append(list, p.Machines[i])
		}
	}
	return list, missing
}

// PlanRotations returns what happens to authorities and keys that are being replaced, and what their replacement waits
// for. holders describes who needs the former cluster CA.
func (p *Situation) PlanRotations(holders func() string) (list []plan.Rotation) {
	_, missing := p.RemainingCluster()
	now := p.Now()
	for _, name := range RotationNames(p.State) {
		r := p.State.Rotations[name]
		entry := plan.Rotation{Name: name, Action: plan.Change}
		switch {
		case len(missing) > 0:
			entry.Action, entry.Note = plan.None, "waits until an apply reaches all machines; this one does not "+
				"reach "+strings.Join(missing, ", ")
		case r.Phase == state.PhaseTrust:
			entry.Note = "trust both everywhere, then issue everything by the next one; " + trustedUntil(r)
		case r.Issued.IsZero():
			entry.Note = "issue everything by the next one; " + trustedUntil(r)
		case r.IsOver(now):
			entry.Note = "the former one is trusted no longer"
		default:
			entry.Action, entry.Note = plan.None, "everything is issued by the next one; "+trustedUntil(r)
			if name == certs.ClusterCA {
				entry.Note += holders()
			}
		}
		list = append(list, entry)
	}
	return list
}

// trustedUntil returns until when the former authority or key is trusted.
func trustedUntil(r state.Rotation) string {
	switch {
	case r.IsFinishRequested || r.Keep == 0:
		return "then drop the former one"
	case r.Keep > 0 && !r.Issued.IsZero():
		return "the former one is trusted until " + r.Issued.Add(r.Keep).UTC().Format("2006-01-02 15:04 UTC")
	case r.Keep > 0:
		return "the former one is trusted for " + r.Keep.String() + " more"
	}
	return "the former one is trusted until clusterctl certs rotate -finish"
}
