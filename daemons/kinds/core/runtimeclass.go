package core

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/podspec"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/warn"
)

func RuntimeClasses() *kind.Kind {
	return &kind.Kind{
		GVK:      nodev1.SchemeGroupVersion.WithKind("RuntimeClass"),
		Resource: "runtimeclasses", Singular: "runtimeclass", CreateOnUpdate: true, ConditionalUpdate: true,
		New: kind.New[nodev1.RuntimeClass](), NewList: kind.New[nodev1.RuntimeClassList](),
		Warnings: kind.AdaptWarnings(runtimeClassWarnings),
		Validate: kind.AdaptValidate(validateRuntimeClass),
		ValidateUpdate: kind.AdaptValidateUpdate(func(c, old *nodev1.RuntimeClass) field.ErrorList {
			return append(validateRuntimeClass(c),
				validate.Immutable(c.Handler, old.Handler, field.NewPath("handler"))...)
		}),
		Columns: kind.NewColumns("Handler", "Age"),
		Row: kind.AdaptRow(func(c *nodev1.RuntimeClass) []any {
			return []any{c.Handler,
				cell.Age(c.CreationTimestamp)}
		}),
	}
}

func validateRuntimeClass(c *nodev1.RuntimeClass) field.ErrorList {
	errs := validate.Required(c.Handler, field.NewPath("handler"), "")
	if c.Handler != "" {
		errs = validate.DNSLabel(c.Handler, field.NewPath("handler"))
	}
	if c.Overhead != nil {
		errs = append(errs, validate.Quantities(c.Overhead.PodFixed, field.NewPath("overhead", "podFixed"))...)
	}
	if s := c.Scheduling; s != nil {
		path := field.NewPath("scheduling")
		errs = append(errs, metavalidation.ValidateLabels(s.NodeSelector, path.Child("nodeSelector"))...)
		errs = append(errs, podspec.ValidateTolerations(s.Tolerations, path.Child("tolerations"))...)
		for i, t := range s.Tolerations {
			if slices.ContainsFunc(s.Tolerations[:i],
				func(other corev1.Toleration) bool { return equality.Semantic.DeepEqual(t, other) }) {
				errs = append(errs, field.Duplicate(path.Child("tolerations").Index(i), t))
			}
		}
	}
	return errs
}

func runtimeClassWarnings(c, _ *nodev1.RuntimeClass) []string {
	var d warn.List
	if c.Scheduling != nil {
		for _, key := range slices.Sorted(maps.Keys(c.Scheduling.NodeSelector)) {
			if text := warn.RenamedLabels[key]; text != "" {
				d.Addf(field.NewPath("scheduling", "nodeSelector"), "%s", text)
			}
		}
	}
	return d
}
