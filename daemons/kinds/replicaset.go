package kinds

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func replicaSets() *Kind {
	return &Kind{
		GVK:      appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		Resource: "replicasets", Singular: "replicaset", ShortNames: []string{"rs"}, Categories: []string{"all"},
		Namespaced: true, HasGeneration: true,
		New: newOf[appsv1.ReplicaSet](), NewList: newOf[appsv1.ReplicaSetList](),
		Default: adapt(func(r *appsv1.ReplicaSet) {
			setDefault(&r.Spec.Replicas, 1)
			defaultPodTemplate(&r.Spec.Template)
		}),
		PrepareCreate: adapt(func(r *appsv1.ReplicaSet) { r.Status = appsv1.ReplicaSetStatus{} }),
		PrepareUpdate: adaptUpdate(func(r, old *appsv1.ReplicaSet) { r.Status = old.Status }),
		Warnings: withNameWarnings(
			templateWarnings(
				func(o *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &o.Spec.Template },
				"spec",
				"template",
			),
		),
		Validate: adaptValidate(validateReplicaSet),
		ValidateUpdate: adaptValidateUpdate(func(r, old *appsv1.ReplicaSet) field.ErrorList {
			return append(
				validateReplicaSet(r),
				requireImmutable(r.Spec.Selector, old.Spec.Selector, field.NewPath("spec", "selector"))...)
		}),
		Fields: adaptFields(func(r *appsv1.ReplicaSet) fields.Set {
			return fields.Set{"status.replicas": strconv.Itoa(int(r.Status.Replicas))}
		}),
		Columns: newColumns(
			"Desired:integer",
			"Current:integer",
			"Ready:integer",
			"Age",
			"Containers*",
			"Images*",
			"Selector*",
		),
		Row: adaptRow(func(r *appsv1.ReplicaSet) []any {
			spec := &r.Spec.Template.Spec
			return []any{
				int64(
					valueOrZero(r.Spec.Replicas),
				), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas), age(r.CreationTimestamp),
				containerNames(spec), containerImages(spec), selectorText(r.Spec.Selector),
			}
		}),
		Status: newStatus(
			func(to, from *appsv1.ReplicaSet) { to.Status = *from.Status.DeepCopy() },
			validateReplicaSetStatus,
		),
		Scale: &Scale{
			Get: func(o runtime.Object) (int32, int32, string) {
				r := o.(*appsv1.ReplicaSet)
				return valueOrZero(r.Spec.Replicas), r.Status.Replicas, scaleSelector(r.Spec.Selector)
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
	errs := requireNotNegative(int64(valueOrZero(r.Spec.Replicas)), path.Child("replicas"))
	errs = append(errs, requireNotNegative(int64(r.Spec.MinReadySeconds), path.Child("minReadySeconds"))...)
	errs = append(errs, validateTemplateSelector("ReplicaSet", r.Spec.Selector, &r.Spec.Template, path)...)
	errs = append(errs, validatePodTemplate(&r.Spec.Template, path.Child("template"))...)
	return append(errs, requireAlwaysRestart("ReplicaSet", &r.Spec.Template.Spec, path.Child("template", "spec"))...)
}

func replicationControllers() *Kind {
	return &Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("ReplicationController"),
		Resource: "replicationcontrollers", Singular: "replicationcontroller", ShortNames: []string{"rc"},
		Categories: []string{"all"},
		Namespaced: true, StorageKey: "controllers", HasGeneration: true, Dependents: OrphanDependents,
		New: newOf[corev1.ReplicationController](), NewList: newOf[corev1.ReplicationControllerList](),
		Default:       adapt(defaultReplicationController),
		PrepareCreate: adapt(func(r *corev1.ReplicationController) { r.Status = corev1.ReplicationControllerStatus{} }),
		PrepareUpdate: adaptUpdate(func(r, old *corev1.ReplicationController) { r.Status = old.Status }),
		Warnings: withNameWarnings(templateWarnings(func(c *corev1.ReplicationController) *corev1.PodTemplateSpec {
			return c.Spec.Template
		}, "spec", "template")),
		Validate: adaptValidate(validateReplicationController),
		Fields: adaptFields(func(r *corev1.ReplicationController) fields.Set {
			return fields.Set{"status.replicas": strconv.Itoa(int(r.Status.Replicas))}
		}),
		Columns: newColumns(
			"Desired:integer",
			"Current:integer",
			"Ready:integer",
			"Age",
			"Containers*",
			"Images*",
			"Selector*",
		),
		Row: adaptRow(func(r *corev1.ReplicationController) []any {
			names, images := "", ""
			if r.Spec.Template != nil {
				names, images = containerNames(&r.Spec.Template.Spec), containerImages(&r.Spec.Template.Spec)
			}
			return []any{
				int64(
					valueOrZero(r.Spec.Replicas),
				), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas), age(r.CreationTimestamp),
				names, images, labelText(r.Spec.Selector),
			}
		}),
		Status: newStatus(
			func(to, from *corev1.ReplicationController) { to.Status = *from.Status.DeepCopy() },
			validateReplicationControllerStatus,
		),
		Scale: &Scale{
			Get: func(o runtime.Object) (int32, int32, string) {
				r := o.(*corev1.ReplicationController)
				return valueOrZero(r.Spec.Replicas), r.Status.Replicas, labels.Set(r.Spec.Selector).String()
			},
			Set: func(o runtime.Object, n int32) { o.(*corev1.ReplicationController).Spec.Replicas = &n },
		},
	}
}

// defaultReplicationController defaults the selector and labels to the labels of the template.
func defaultReplicationController(r *corev1.ReplicationController) {
	setDefault(&r.Spec.Replicas, 1)
	if r.Spec.Template == nil {
		return
	}
	defaultPodTemplate(r.Spec.Template)
	if len(r.Spec.Selector) == 0 {
		r.Spec.Selector = r.Spec.Template.Labels
	}
	if len(r.Labels) == 0 {
		r.Labels = r.Spec.Template.Labels
	}
}

func validateReplicationController(r *corev1.ReplicationController) field.ErrorList {
	path := field.NewPath("spec")
	errs := requireNotNegative(int64(valueOrZero(r.Spec.Replicas)), path.Child("replicas"))
	errs = append(errs, requireNotNegative(int64(r.Spec.MinReadySeconds), path.Child("minReadySeconds"))...)
	if len(r.Spec.Selector) == 0 {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	}
	if r.Spec.Template == nil {
		return append(errs, field.Required(path.Child("template"), ""))
	}
	if !labels.SelectorFromSet(r.Spec.Selector).Matches(labels.Set(r.Spec.Template.Labels)) {
		errs = append(
			errs,
			field.Invalid(
				path.Child("template", "metadata", "labels"),
				r.Spec.Template.Labels,
				"`selector` does not match template `labels`",
			),
		)
	}
	errs = append(errs, validatePodTemplate(r.Spec.Template, path.Child("template"))...)
	return append(
		errs,
		requireAlwaysRestart("ReplicationController", &r.Spec.Template.Spec, path.Child("template", "spec"))...)
}
