package workload

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/podspec"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func DaemonSets() *kind.Kind {
	return &kind.Kind{
		GVK:      appsv1.SchemeGroupVersion.WithKind("DaemonSet"),
		Resource: "daemonsets", Singular: "daemonset", ShortNames: []string{"ds"}, Categories: []string{"all"},
		Namespaced: true, HasGeneration: true,
		New: kind.New[appsv1.DaemonSet](), NewList: kind.New[appsv1.DaemonSetList](),
		Default: kind.Adapt(defaultDaemonSet),
		PrepareCreate: kind.Adapt(func(d *appsv1.DaemonSet) {
			d.Status = appsv1.DaemonSetStatus{}
			countTemplate(d, max(templateCount(d), 1))
		}),
		PrepareUpdate: kind.AdaptUpdate(func(d, old *appsv1.DaemonSet) {
			d.Status = old.Status
			n := max(templateCount(old), 1)
			if !value.Same(d.Spec.Template, old.Spec.Template) {
				n++
			}
			countTemplate(d, n)
		}),
		Warnings: podspec.TemplateWarnings(
			func(o *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &o.Spec.Template },
			"spec",
			"template",
		),
		Validate: kind.AdaptValidate(validateDaemonSet),
		ValidateUpdate: kind.AdaptValidateUpdate(func(d, old *appsv1.DaemonSet) field.ErrorList {
			return append(validateDaemonSet(d), validate.Immutable(d.Spec.Selector, old.Spec.Selector,
				field.NewPath("spec", "selector"))...)
		}),
		Columns: kind.NewColumns("Desired:integer", "Current:integer", "Ready:integer", "Up-to-date:integer",
			"Available:integer", "Node Selector", "Age", "Containers*", "Images*", "Selector*"),
		Row: kind.AdaptRow(func(d *appsv1.DaemonSet) []any {
			spec := &d.Spec.Template.Spec
			return []any{
				int64(
					d.Status.DesiredNumberScheduled,
				), int64(d.Status.CurrentNumberScheduled), int64(d.Status.NumberReady),
				int64(d.Status.UpdatedNumberScheduled), int64(d.Status.NumberAvailable),
				cell.LabelText(spec.NodeSelector),
				cell.Age(d.CreationTimestamp), cell.ContainerNames(spec), cell.ContainerImages(spec),
				cell.SelectorText(d.Spec.Selector),
			}
		}),
		Status: kind.NewStatus(func(to, from *appsv1.DaemonSet) { to.Status = *from.Status.DeepCopy() },
			validateDaemonSetStatus),
	}
}

// templateCount returns how often the template has changed. It is recorded in an annotation, since the field for it was
// removed.
func templateCount(d *appsv1.DaemonSet) int64 {
	n, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return 0 // not recorded
	}
	return n
}

func countTemplate(d *appsv1.DaemonSet, n int64) {
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(n, 10)
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	value.SetDefault(&d.Spec.RevisionHistoryLimit, 10)
	value.SetEmpty(&d.Spec.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if d.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		value.SetDefault(&d.Spec.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		value.SetDefault(&d.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		value.SetDefault(&d.Spec.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	podspec.DefaultTemplate(&d.Spec.Template)
	countTemplate(d,
		templateCount(d)) // the annotation is part of every write, although clients cannot choose its value
}

func validateDaemonSet(d *appsv1.DaemonSet) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateTemplateSelector("DaemonSet", d.Spec.Selector, &d.Spec.Template, path)
	errs = append(errs, podspec.ValidateTemplate(&d.Spec.Template, path.Child("template"))...)
	errs = append(errs, requireAlwaysRestart("DaemonSet", &d.Spec.Template.Spec, path.Child("template", "spec"))...)
	errs = append(errs, validate.NotNegative(int64(d.Spec.MinReadySeconds), path.Child("minReadySeconds"))...)
	errs = append(errs, validate.NotNegative(int64(value.OrZero(d.Spec.RevisionHistoryLimit)),
		path.Child("revisionHistoryLimit"))...)
	at := path.Child("updateStrategy")
	switch s := d.Spec.UpdateStrategy; s.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
	case appsv1.RollingUpdateDaemonSetStrategyType:
		r := s.RollingUpdate
		if r == nil {
			return append(errs, field.Required(at.Child("rollingUpdate"), ""))
		}
		unavailable, surge := at.Child("rollingUpdate", "maxUnavailable"), at.Child("rollingUpdate", "maxSurge")
		errs = append(errs, validate.CountOrShare(r.MaxUnavailable, unavailable)...)
		errs = append(errs, validate.CountOrShare(r.MaxSurge, surge)...)
		switch {
		case !validate.IsZero(r.MaxUnavailable) && !validate.IsZero(r.MaxSurge):
			errs = append(errs, field.Invalid(surge, r.MaxSurge, "may not be set when maxUnavailable is non-zero"))
		case validate.IsZero(r.MaxUnavailable) && validate.IsZero(r.MaxSurge):
			errs = append(errs, field.Required(unavailable, "cannot be 0 when maxSurge is 0"))
		}
	default:
		errs = append(errs, validate.NotSupported(at.Child("type"), s.Type, []appsv1.DaemonSetUpdateStrategyType{
			appsv1.OnDeleteDaemonSetStrategyType, appsv1.RollingUpdateDaemonSetStrategyType,
		}))
	}
	return errs
}
