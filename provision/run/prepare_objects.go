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
	"clusterctl/provision/run/certificate"
	"clusterctl/provision/run/objects"
	"clusterctl/provision/run/session"
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
	p.engine.Config.Inventory = p.situation.Inventory()
	p.engine.Config.HasFormerUsers = certificate.HasFormerUsers(p.State)
	p.engine.Config.HadGitSources = slices.ContainsFunc(p.State.Objects, role.IsGitSource)
	p.engine.Config.HadPools = slices.ContainsFunc(p.State.Objects, poolsObject.IsSame)
	ctx, cancel := context.WithTimeout(ctx, session.CheckTimeout)
	defer cancel()
	live, err := p.engine.ConnectCluster(p.State, p.engine.Config)
	if err != nil {
		return err
	}
	p.session.API = live
	parts, err := objects.SelectParts(live, p.situation, p.ledger)
	if err != nil {
		return err
	}
	if p.situation.IsNewCluster {
		awaited, err := live.References(parts.Declared)
		p.Plan.IsPending, p.Plan.AwaitedObjects = true, len(awaited)
		return err
	}
	list, ended, err := live.Plan(ctx, parts.Declared, parts.Before)
	if session.IsInterrupted(ctx) {
		return session.ErrInterrupted
	}
	if !p.canPlanObjects(err) {
		return nil
	}
	p.VanishedObjects = ended
	p.addObjects(list)
	return nil
}

// canPlanObjects records why objects could not be compared, or which of them the API refuses. It reports whether the
// result of the comparison is usable.
func (p *Prepared) canPlanObjects(err error) bool {
	var refused session.RefusedError
	switch {
	case errors.As(err, &refused) && p.situation.UpgradesAPIServer() && refused.HasOnlyUnknownKinds():
		p.Plan.IsPending = true
		p.Plan.Warnings = append(p.Plan.Warnings,
			"kinds that only the new release may know are declared, so objects are compared after the machines")
		return false
	case errors.As(err, &refused):
		p.Refused = refused
	case err != nil:
		// An unreachable API does not stop the plan: certificates must be renewed and daemons repaired in that case as
		// well.
		p.Plan.IsPending, p.Plan.CompareError = true, err.Error()
		p.Plan.Warnings = append(p.Plan.Warnings, fmt.Sprintf(
			"objects could not be compared with the cluster, so they are compared after the machines: %v", err))
		return false
	}
	return true
}

// addObjects adds the selected objects to the plan.
func (p *Prepared) addObjects(objects []plan.Object) {
	for _, o := range objects {
		if o.Action != plan.Create && o.Action != plan.Remove && o.Action != plan.Refused &&
			p.engine.IsReplaced(o.Address) {
			o.Action, o.Note = plan.Replace, "delete it, then create it again"
		}
		if o.Action == plan.Remove || o.Action == plan.Replace {
			o.Loss = p.situation.LossOf(o)
		}
		if p.engine.IsSelected(o.Address) {
			p.Plan.Objects = append(p.Plan.Objects, o)
		}
	}
}

// checkDeletions returns an error if the plan would delete a machine or an object that prevent_destroy protects.
func (p *Prepared) checkDeletions(context.Context) error {
	protected := p.Plan.CheckProtected(p.engine.Config, p.State)
	going, err := p.objectsToDelete()
	if err != nil {
		return err
	}
	if len(going) == 0 {
		return protected
	}
	if p.session.API == nil { // a destroy does not compare objects, so there is no client yet
		if p.session.API, err = p.engine.ConnectCluster(p.State, p.engine.Config); err != nil {
			return err
		}
	}
	declared, err := p.session.API.References(p.engine.Config)
	if err != nil {
		return err
	}
	return errors.Join(protected, p.situation.CheckProtected(going, declared))
}

// objectsToDelete returns the objects that the plan deletes, whether or not they have been compared with the API yet.
func (p *Prepared) objectsToDelete() ([]state.Object, error) {
	if p.engine.IsDestroy {
		return p.State.Objects, nil
	}
	declared, err := p.session.API.References(p.engine.Config)
	if err != nil {
		return nil, err
	}
	return p.situation.ObjectsToDelete(declared), nil
}

// orderStages adds to the plan the order in which it is carried out.
func (p *Prepared) orderStages(context.Context) error {
	p.Plan.Stages = p.situation.Stages(p.Plan)
	return nil
}
