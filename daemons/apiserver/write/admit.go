package write

import (
	"context"

	autoscalingv1 "k8s.io/api/autoscaling/v1"

	"clusterctl/daemons/api"
)

// admission returns the write in the form that admission plugins read. The value is valid until the next call.
func (a *attempt) admission() *api.Admission {
	a.cachedAdmission = api.Admission{
		Operation: a.origin.operation, User: a.q.User, Internal: a.q.IsInternal,
		Kind: a.q.Served.GVK, Resource: a.q.Served.GVR(), Subresource: a.q.Subresource,
		Namespace: a.q.Namespace, Name: a.name(),
		Object: a.next.obj, Old: a.live.obj, DryRun: a.w.dryRun, Warn: a.q.Answer.Warn,
		Origin: &a.origin, Versions: &a.versions, IsConverted: a.q.Answer.IsAdmitted || a.q.Subresource == "scale",
	}
	return &a.cachedAdmission
}

// runMutators calls the mutating plugins. It calls them a second time if one of them changed an object that earlier
// plugins had seen.
func (a *attempt) runMutators(ctx context.Context) error {
	admission := a.admission()
	if err := a.s.admitter.runMutators(ctx, a.s.admitter.all, admission); err != nil {
		return err
	}
	a.next.obj = admission.Object
	if a.q.Subresource == "scale" {
		return a.mutateScale(ctx)
	}
	return nil
}

// runValidators calls the validating plugins.
func (a *attempt) runValidators(ctx context.Context) error {
	admission := a.admission()
	if err := a.s.admitter.runValidators(ctx, a.s.admitter.all, admission); err != nil {
		return err
	}
	if a.q.Subresource == "scale" {
		scaled, err := a.scaleAdmission()
		if err != nil {
			return err
		}
		return a.s.admitter.runValidators(ctx, a.s.admitter.external, scaled)
	}
	return nil
}

// mutateScale lets webhooks and policies change a write to the scale subresource.
func (a *attempt) mutateScale(ctx context.Context) error {
	scaled, err := a.scaleAdmission()
	if err != nil {
		return err
	}
	if err := a.s.admitter.runMutators(ctx, a.s.admitter.external, scaled); err != nil {
		return err
	}
	if scale, ok := scaled.Object.(*autoscalingv1.Scale); ok {
		a.q.Served.Scale.Set(a.next.obj, scale.Spec.Replicas)
	}
	return nil
}

func (a *attempt) scaleAdmission() (*api.Admission, error) {
	q, scaled := a.q, *a.admission()
	scaled.Kind, scaled.Resource, scaled.Versions, scaled.IsConverted = scaleKind, q.Served.Name(), nil, false
	var err error
	if scaled.Object, err = scaleOf(q, a.next.obj); err != nil {
		return nil, err
	}
	if a.live.obj != nil {
		scaled.Old, err = scaleOf(q, a.live.obj)
	}
	return &scaled, err
}
