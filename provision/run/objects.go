package run

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	daemons "clusterctl/daemons/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/role"
	"clusterctl/provision/state"
)

// poolsObject is the object that holds the cluster's address pools.
var poolsObject = state.Object{
	APIVersion: "v1",
	Kind:       "ConfigMap",
	Namespace:  metav1.NamespaceSystem,
	Name:       daemons.PoolsName,
}

// compareObjects compares the declared objects with those in the cluster, if there is a cluster.
func (p *Prepared) compareObjects(ctx context.Context) error {
	if p.engine.IsDestroy {
		return nil
	}
	p.engine.Config.Inventory = p.inventory()
	p.engine.Config.HasFormerUsers = hasFormerUsers(p.State)
	p.engine.Config.HadGitSources = slices.ContainsFunc(p.State.Objects, role.IsGitSource)
	p.engine.Config.HadPools = slices.ContainsFunc(p.State.Objects, poolsObject.IsSame)
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	live, err := p.engine.ConnectCluster(p.State, p.engine.Config)
	if err != nil {
		return err
	}
	p.cluster = live
	declared, before, _, err := p.selectParts()
	if err != nil {
		return err
	}
	if p.isNewCluster {
		awaited, err := live.References(declared)
		p.Plan.IsPending, p.Plan.AwaitedObjects = true, len(awaited)
		return err
	}
	objects, ended, err := live.Plan(ctx, declared, before)
	if isInterrupted(ctx) {
		return ErrInterrupted
	}
	var refused RefusedError
	switch {
	case errors.As(err, &refused) && p.upgradesAPIServer() && refused.hasOnlyUnknownKinds():
		p.Plan.IsPending = true
		p.Plan.Warnings = append(
			p.Plan.Warnings,
			"kinds that only the new release may know are declared, so objects are compared after the machines",
		)
		return nil
	case errors.As(err, &refused):
		p.refused = refused
	case err != nil:
		// An unreachable API does not stop the plan: certificates must be renewed and daemons repaired in that case as
		// well.
		p.Plan.IsPending, p.Plan.CompareError = true, err.Error()
		p.Plan.Warnings = append(
			p.Plan.Warnings,
			fmt.Sprintf(
				"objects could not be compared with what is there, so they are compared after the machines: %v",
				err,
			),
		)
		return nil
	}
	p.vanishedObjects = ended
	for _, o := range objects {
		if o.Action != plan.Create && o.Action != plan.Remove && o.Action != plan.Refused &&
			p.engine.isReplaced(o.Address) {
			o.Action, o.Note = plan.Replace, "delete it, then make it anew"
		}
		if o.Action == plan.Remove || o.Action == plan.Replace {
			o.Loss = p.lossOf(o)
		}
		if p.engine.isSelected(o.Address) {
			p.Plan.Objects = append(p.Plan.Objects, o)
		}
	}
	return nil
}

// hasFormerUsers reports whether a machine has a certificate of one of daemons.HasFormerUsers.
func hasFormerUsers(s *state.State) bool {
	for _, m := range s.Machines {
		for _, is := range m.Issued {
			if slices.Contains(daemons.FormerUsers, is.Name) {
				return true
			}
		}
	}
	return false
}
