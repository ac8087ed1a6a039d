package kinds

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func runtimeClasses() *Kind {
	return &Kind{
		GVK:      nodev1.SchemeGroupVersion.WithKind("RuntimeClass"),
		Resource: "runtimeclasses", Singular: "runtimeclass", CreateOnUpdate: true, ConditionalUpdate: true,
		New: newOf[nodev1.RuntimeClass](), NewList: newOf[nodev1.RuntimeClassList](),
		Warnings: adaptWarnings(runtimeClassWarnings),
		Validate: adaptValidate(validateRuntimeClass),
		ValidateUpdate: adaptValidateUpdate(func(c, old *nodev1.RuntimeClass) field.ErrorList {
			return append(validateRuntimeClass(c),
				requireImmutable(c.Handler, old.Handler, field.NewPath("handler"))...)
		}),
		Columns: newColumns("Handler", "Age"),
		Row:     adaptRow(func(c *nodev1.RuntimeClass) []any { return []any{c.Handler, age(c.CreationTimestamp)} }),
	}
}

func validateRuntimeClass(c *nodev1.RuntimeClass) field.ErrorList {
	errs := requireValue(c.Handler, field.NewPath("handler"), "")
	if c.Handler != "" {
		errs = validateDNSLabel(c.Handler, field.NewPath("handler"))
	}
	if c.Overhead != nil {
		errs = append(errs, validateQuantities(c.Overhead.PodFixed, field.NewPath("overhead", "podFixed"))...)
	}
	if s := c.Scheduling; s != nil {
		path := field.NewPath("scheduling")
		errs = append(errs, metavalidation.ValidateLabels(s.NodeSelector, path.Child("nodeSelector"))...)
		errs = append(errs, validateTolerations(s.Tolerations, path.Child("tolerations"))...)
		for i, t := range s.Tolerations {
			if slices.ContainsFunc(
				s.Tolerations[:i],
				func(other corev1.Toleration) bool { return equality.Semantic.DeepEqual(t, other) },
			) {
				errs = append(errs, field.Duplicate(path.Child("tolerations").Index(i), t))
			}
		}
	}
	return errs
}

func runtimeClassWarnings(c, _ *nodev1.RuntimeClass) []string {
	var d warningList
	if c.Scheduling != nil {
		for _, key := range slices.Sorted(maps.Keys(c.Scheduling.NodeSelector)) {
			if text := renamedLabelWarnings[key]; text != "" {
				d.addf(field.NewPath("scheduling", "nodeSelector"), "%s", text)
			}
		}
	}
	return d
}
