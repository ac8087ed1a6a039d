package workload

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/podspec"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func ReplicaSets() *kind.Kind {
	return &kind.Kind{
		GVK:      appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		Resource: "replicasets", Singular: "replicaset", ShortNames: []string{"rs"}, Categories: []string{"all"},
		Namespaced: true, HasGeneration: true,
		New: kind.New[appsv1.ReplicaSet](), NewList: kind.New[appsv1.ReplicaSetList](),
		Default: kind.Adapt(func(r *appsv1.ReplicaSet) {
			value.SetDefault(&r.Spec.Replicas, 1)
			podspec.DefaultTemplate(&r.Spec.Template)
		}),
		PrepareCreate: kind.Adapt(func(r *appsv1.ReplicaSet) { r.Status = appsv1.ReplicaSetStatus{} }),
		PrepareUpdate: kind.AdaptUpdate(func(r, old *appsv1.ReplicaSet) { r.Status = old.Status }),
		Warnings: podspec.WithNameWarnings(
			podspec.TemplateWarnings(func(o *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &o.Spec.Template },
				"spec", "template"),
		),
		Validate: kind.AdaptValidate(validateReplicaSet),
		ValidateUpdate: kind.AdaptValidateUpdate(func(r, old *appsv1.ReplicaSet) field.ErrorList {
			return append(validateReplicaSet(r), validate.Immutable(r.Spec.Selector, old.Spec.Selector,
				field.NewPath("spec", "selector"))...)
		}),
		Fields: kind.AdaptFields(func(r *appsv1.ReplicaSet) fields.Set {
			return fields.Set{"status.replicas": strconv.Itoa(int(r.Status.Replicas))}
		}),
		Columns: kind.NewColumns("Desired:integer", "Current:integer", "Ready:integer", "Age", "Containers*", "Images*",
			"Selector*"),
		Row: kind.AdaptRow(func(r *appsv1.ReplicaSet) []any {
			spec := &r.Spec.Template.Spec
			return []any{
				int64(
					value.OrZero(r.Spec.Replicas),
				), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas), cell.Age(r.CreationTimestamp),
				cell.ContainerNames(spec), cell.ContainerImages(spec), cell.SelectorText(r.Spec.Selector),
			}
		}),
		Status: kind.NewStatus(func(to, from *appsv1.ReplicaSet) { to.Status = *from.Status.DeepCopy() },
			validateReplicaSetStatus),
		Scale: &kind.Scale{
			Get: func(o runtime.Object) (int32, int32, string) {
				r := o.(*appsv1.ReplicaSet)
				return value.OrZero(r.Spec.Replicas), r.Status.Replicas, scaleSelector(r.Spec.Selector)
			},
			Set: func(o runtime.Object, n int32) { o.(*appsv1.ReplicaSet).Spec.Replicas = &n },
		},
	}
}

// scaleSelector returns the text form of a selector, which autoscalers parse.
func scaleSelector(s *metav1.LabelSelector) string {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return ""
	}
	return selector.String()
}

func validateReplicaSet(r *appsv1.ReplicaSet) field.ErrorList {
	path := field.NewPath("spec")
	errs := validate.NotNegative(int64(value.OrZero(r.Spec.Replicas)), path.Child("replicas"))
	errs = append(errs, validate.NotNegative(int64(r.Spec.MinReadySeconds), path.Child("minReadySeconds"))...)
	errs = append(errs, validateTemplateSelector("ReplicaSet", r.Spec.Selector, &r.Spec.Template, path)...)
	errs = append(errs, podspec.ValidateTemplate(&r.Spec.Template, path.Child("template"))...)
	return append(errs, requireAlwaysRestart("ReplicaSet", &r.Spec.Template.Spec, path.Child("template", "spec"))...)
}

func ReplicationControllers() *kind.Kind {
	return &kind.Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("ReplicationController"),
		Resource: "replicationcontrollers", Singular: "replicationcontroller", ShortNames: []string{"rc"},
		Categories: []string{"all"},
		Namespaced: true, StorageKey: "controllers", HasGeneration: true, Dependents: kind.OrphanDependents,
		New: kind.New[corev1.ReplicationController](), NewList: kind.New[corev1.ReplicationControllerList](),
		Default: kind.Adapt(defaultReplicationController),
		PrepareCreate: kind.Adapt(func(r *corev1.ReplicationController) {
			r.Status = corev1.ReplicationControllerStatus{}
		}),
		PrepareUpdate: kind.AdaptUpdate(func(r, old *corev1.ReplicationController) { r.Status = old.Status }),
		Warnings: podspec.WithNameWarnings(podspec.TemplateWarnings(func(
			c *corev1.ReplicationController) *corev1.PodTemplateSpec {
			return c.Spec.Template
		}, "spec", "template")),
		Validate: kind.AdaptValidate(validateReplicationController),
		Fields: kind.AdaptFields(func(r *corev1.ReplicationController) fields.Set {
			return fields.Set{"status.replicas": strconv.Itoa(int(r.Status.Replicas))}
		}),
		Columns: kind.NewColumns("Desired:integer", "Current:integer", "Ready:integer", "Age", "Containers*", "Images*",
			"Selector*"),
		Row: kind.AdaptRow(func(r *corev1.ReplicationController) []any {
			names, images := "", ""
			if r.Spec.Template != nil {
				names, images = cell.ContainerNames(&r.Spec.Template.Spec), cell.ContainerImages(&r.Spec.Template.Spec)
			}
			return []any{
				int64(
					value.OrZero(r.Spec.Replicas),
				), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas), cell.Age(r.CreationTimestamp),
				names, images, cell.LabelText(r.Spec.Selector),
			}
		}),
		Status: kind.NewStatus(func(to, from *corev1.ReplicationController) { to.Status = *from.Status.DeepCopy() },
			validateReplicationControllerStatus),
		Scale: &kind.Scale{
			Get: func(o runtime.Object) (int32, int32, string) {
				r := o.(*corev1.ReplicationController)
				return value.OrZero(r.Spec.Replicas), r.Status.Replicas, labels.Set(r.Spec.Selector).String()
			},
			Set: func(o runtime.Object, n int32) { o.(*corev1.ReplicationController).Spec.Replicas = &n },
		},
	}
}

// defaultReplicationController defaults the selector and labels to the labels of the template.
func defaultReplicationController(r *corev1.ReplicationController) {
	value.SetDefault(&r.Spec.Replicas, 1)
	if r.Spec.Template == nil {
		return
	}
	podspec.DefaultTemplate(r.Spec.Template)
	if len(r.Spec.Selector) == 0 {
		r.Spec.Selector = r.Spec.Template.Labels
	}
	if len(r.Labels) == 0 {
		r.Labels = r.Spec.Template.Labels
	}
}

func validateReplicationController(r *corev1.ReplicationController) field.ErrorList {
	path := field.NewPath("spec")
	errs := validate.NotNegative(int64(value.OrZero(r.Spec.Replicas)), path.Child("replicas"))
	errs = append(errs, validate.NotNegative(int64(r.Spec.MinReadySeconds), path.Child("minReadySeconds"))...)
	if len(r.Spec.Selector) == 0 {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	}
	if r.Spec.Template == nil {
		return append(errs, field.Required(path.Child("template"), ""))
	}
	if !labels.SelectorFromSet(r.Spec.Selector).Matches(labels.Set(r.Spec.Template.Labels)) {
		errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), r.Spec.Template.Labels,
			"`selector` does not match template `labels`"))
	}
	errs = append(errs, podspec.ValidateTemplate(r.Spec.Template, path.Child("template"))...)
	return append(errs, requireAlwaysRestart("ReplicationController", &r.Spec.Template.Spec,
		path.Child("template", "spec"))...)
}
