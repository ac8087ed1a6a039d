package objects

import (
	"context"
	"slices"
	"time"

	"clusterctl/hcl/config"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// AwaitAPIServer waits until an API server answers. It gives up when the work on machines ends without that.
func (a *Applier) AwaitAPIServer(ctx context.Context, through <-chan struct{}) bool {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for last := false; ; {
		if _, err := a.Session.API.Nodes(ctx); err == nil {
			return true
		}
		if last {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-through:
			last = true
		case <-tick.C:
		}
	}
}

// LabelNodes gives nodes that were created in this run the labels that nodes may not set on themselves.
func (a *Applier) LabelNodes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	nodes := decide.WithMachines(a.Situation.Config,
		func(m config.Machine) bool { return a.isNodeCreatedNow(m) && a.hasJoinedInRun(m) })
	if len(nodes.Machines) == 0 {
		return nil
	}
	nodes.Workloads, nodes.Objects = nil, nil
	_, err := a.Session.API.Apply(ctx, nodes, nil, a.reportObject)
	return err
}

// AwaitHealthy waits until what was applied is healthy.
func (a *Applier) AwaitHealthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	parts, err := SelectParts(a.Session.API, a.Situation, a.Ledger)
	if err != nil {
		return err
	}
	return a.Session.API.Wait(ctx, parts.Declared, a.reportObject)
}

// isNodeCreatedNow reports whether this run creates a machine's node. Labelling it before its kubelet has registered
// would create a second Node.
func (a *Applier) isNodeCreatedNow(m config.Machine) bool {
	return slices.ContainsFunc(a.Session.Machines,
		func(own *session.Machine) bool { return own.Address == m.Address && own.CreatesNode })
}

// hasJoinedInRun reports whether a machine's node has joined in this run. Joined in the state may date from before the
// machine was reinstalled.
func (a *Applier) hasJoinedInRun(m config.Machine) (joined bool) {
	a.Ledger.View(func(*state.State) {
		joined = slices.ContainsFunc(a.Session.Machines,
			func(own *session.Machine) bool { return own.Address == m.Address && own.HasJoinedNow })
	})
	return joined
}
