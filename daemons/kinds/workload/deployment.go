// Package workload declares the kinds with a pod template, their autoscalers and disruption budgets.
package workload

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/podspec"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func Deployments() *kind.Kind {
	return &kind.Kind{
		GVK:      appsv1.SchemeGroupVersion.WithKind("Deployment"),
		Resource: "deployments", Singular: "deployment", ShortNames: []string{"deploy"}, Categories: []string{"all"},
		Namespaced: true, HasGeneration: true,
		New: kind.New[appsv1.Deployment](), NewList: kind.New[appsv1.DeploymentList](),
		Default:       kind.Adapt(defaultDeployment),
		PrepareCreate: kind.Adapt(func(d *appsv1.Deployment) { d.Status = appsv1.DeploymentStatus{} }),
		PrepareUpdate: kind.AdaptUpdate(func(d, old *appsv1.Deployment) { d.Status = old.Status }),
		// Annotations are copied to the replica sets.
		RaisesGeneration: func(obj, old runtime.Object) bool {
			return !value.Same(obj.(*appsv1.Deployment).Annotations, old.(*appsv1.Deployment).Annotations)
		},
		Warnings: podspec.WithNameWarnings(
			podspec.TemplateWarnings(func(o *appsv1.Deployment) *corev1.PodTemplateSpec { return &o.Spec.Template },
				"spec", "template"),
		),
		Validate: kind.AdaptValidate(validateDeployment),
		ValidateUpdate: kind.AdaptValidateUpdate(func(d, old *appsv1.Deployment) field.ErrorList {
			return append(validateDeployment(d), validate.Immutable(d.Spec.Selector, old.Spec.Selector,
				field.NewPath("spec", "selector"))...)
		}),
		Columns: kind.NewColumns("Ready", "Up-to-date:integer", "Available:integer", "Age", "Containers*", "Images*",
			"Selector*"),
		Row: kind.AdaptRow(func(d *appsv1.Deployment) []any {
			spec := &d.Spec.Template.Spec
			return []any{
				fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, value.OrZero(d.Spec.Replicas)),
				int64(d.Status.UpdatedReplicas),
				int64(d.Status.AvailableReplicas), cell.Age(d.CreationTimestamp),
				cell.ContainerNames(spec), cell.ContainerImages(spec), cell.SelectorText(d.Spec.Selector),
			}
		}),
		Status: kind.NewStatus(func(to, from *appsv1.Deployment) { to.Status = *from.Status.DeepCopy() },
			validateDeploymentStatus).WithKeptMeta("labels"),
		Scale: &kind.Scale{
			Get: func(o runtime.Object) (int32, int32, string) {
				d := o.(*appsv1.Deployment)
				return value.OrZero(d.Spec.Replicas), d.Status.Replicas, scaleSelector(d.Spec.Selector)
			},
			Set: func(o runtime.Object, n int32) { o.(*appsv1.Deployment).Spec.Replicas = &n },
		},
	}
}

func defaultDeployment(d *appsv1.Deployment) {
	value.SetDefault(&d.Spec.Replicas, 1)
	value.SetDefault(&d.Spec.RevisionHistoryLimit, 10)
	value.SetDefault(&d.Spec.ProgressDeadlineSeconds, 600)
	value.SetEmpty(&d.Spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		value.SetDefault(&d.Spec.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		value.SetDefault(&d.Spec.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		value.SetDefault(&d.Spec.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	podspec.DefaultTemplate(&d.Spec.Template)
}

func validateDeployment(d *appsv1.Deployment) field.ErrorList {
	path := field.NewPath("spec")
	errs := validate.NotNegative(int64(value.OrZero(d.Spec.Replicas)), path.Child("replicas"))
	errs = append(errs, validateTemplateSelector("Deployment", d.Spec.Selector, &d.Spec.Template, path)...)
	errs = append(errs, podspec.ValidateTemplate(&d.Spec.Template, path.Child("template"))...)
	errs = append(errs, requireAlwaysRestart("Deployment", &d.Spec.Template.Spec, path.Child("template", "spec"))...)
	errs = append(errs, validateDeploymentStrategy(&d.Spec.Strategy, path.Child("strategy"))...)
	errs = append(errs, validate.NotNegative(int64(d.Spec.MinReadySeconds), path.Child("minReadySeconds"))...)
	errs = append(errs, validate.NotNegative(int64(value.OrZero(d.Spec.RevisionHistoryLimit)),
		path.Child("revisionHistoryLimit"))...)
	if deadline := d.Spec.ProgressDeadlineSeconds; deadline != nil {
		errs = append(errs, validate.NotNegative(int64(*deadline), path.Child("progressDeadlineSeconds"))...)
		if *deadline <= d.Spec.MinReadySeconds {
			errs = append(errs, field.Invalid(path.Child("progressDeadlineSeconds"), *deadline,
				"must be greater than minReadySeconds"))
		}
	}
	return errs
}

func validateDeploymentStrategy(s *appsv1.DeploymentStrategy, path *field.Path) field.ErrorList {
	switch s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if s.RollingUpdate != nil {
			return field.ErrorList{
				field.Forbidden(path.Child("rollingUpdate"), "may not be specified when strategy `type` is 'Recreate'"),
			}
		}
		return nil
	case appsv1.RollingUpdateDeploymentStrategyType:
		if s.RollingUpdate == nil {
			return field.ErrorList{
				field.Required(path.Child("rollingUpdate"), "this should be defaulted and never be nil"),
			}
		}
		r, at := s.RollingUpdate, path.Child("rollingUpdate")
		errs := validate.CountOrShare(r.MaxUnavailable, at.Child("maxUnavailable"))
		errs = append(errs, validate.CountOrPercent(r.MaxSurge, at.Child("maxSurge"))...)
		if validate.IsZero(r.MaxUnavailable) && validate.IsZero(r.MaxSurge) {
			errs = append(errs, field.Invalid(at.Child("maxUnavailable"), r.MaxUnavailable,
				"may not be 0 when `maxSurge` is 0"))
		}
		return errs
	default:
		return field.ErrorList{validate.NotSupported(path, s, []appsv1.DeploymentStrategyType{
			appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType,
		})}
	}
}
