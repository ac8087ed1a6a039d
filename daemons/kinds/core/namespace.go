package core

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func Namespaces() *kind.Kind {
	return &kind.Kind{
		GVK:      corev1.SchemeGroupVersion.WithKind("Namespace"),
		Resource: "namespaces", Singular: "namespace", ShortNames: []string{"ns"},
		New: kind.New[corev1.Namespace](), NewList: kind.New[corev1.NamespaceList](),
		// Namespaces have no deletecollection.
		Verbs:      []string{"create", "get", "list", "watch", "update", "patch", "delete"},
		NameErrors: validate.DNSLabelNameErrors,
		Default:    kind.Adapt(defaultNamespace),
		PrepareCreate: kind.Adapt(func(n *corev1.Namespace) {
			defaultNamespace(n)
			n.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
			if !slices.Contains(n.Spec.Finalizers, corev1.FinalizerKubernetes) {
				n.Spec.Finalizers = append(n.Spec.Finalizers, corev1.FinalizerKubernetes)
			}
		}),
		// Finalizers change only through the finalize subresource, which admission enforces.
		PrepareUpdate: kind.AdaptUpdate(func(n, old *corev1.Namespace) { n.Status = old.Status }),
		Validate: kind.AdaptValidate(func(n *corev1.Namespace) field.ErrorList {
			var errs field.ErrorList
			for i, f := range n.Spec.Finalizers {
				at, name := field.NewPath("spec", "finalizers").Index(i), string(f)
				errs = append(errs, validate.Invalid(at, name, validation.IsQualifiedName(name))...)
				if f != corev1.FinalizerKubernetes && !strings.Contains(name, "/") {
					errs = append(errs, field.Invalid(at, name,
						"name is neither a standard finalizer name nor is it fully qualified"))
				}
			}
			return errs
		}),
		ValidateUpdate: kind.AdaptValidateUpdate(func(n, old *corev1.Namespace) field.ErrorList {
			name := field.NewPath("metadata", "labels").Key(corev1.LabelMetadataName)
			if n.Labels[corev1.LabelMetadataName] != n.Name {
				return field.ErrorList{
					field.Invalid(name, n.Labels[corev1.LabelMetadataName], "must be the name of the namespace"),
				}
			}
			return nil
		}),
		Fields: kind.AdaptFields(func(n *corev1.Namespace) fields.Set {
			return fields.Set{"status.phase": string(n.Status.Phase)}
		}),
		Columns: kind.NewColumns("Status", "Age"),
		Row: kind.AdaptRow(
			func(n *corev1.Namespace) []any { return []any{string(n.Status.Phase), cell.Age(n.CreationTimestamp)} },
		),
		Status: kind.NewStatus(func(to, from *corev1.Namespace) { to.Status = *from.Status.DeepCopy() },
			validateNamespaceStatus),
		Subresources: []string{"finalize"},
	}
}

// defaultNamespace sets the label by which selectors find a namespace by name.
func defaultNamespace(n *corev1.Namespace) {
	if n.Name == "" {
		return // generateName: the label is set once there is a name
	}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelMetadataName] = n.Name
	value.SetEmpty(&n.Status.Phase, corev1.NamespaceActive)
}

func validateNamespaceStatus(n, _ *corev1.Namespace) field.ErrorList {
	path, phase := field.NewPath("status", "Phase"), n.Status.Phase
	switch {
	case n.DeletionTimestamp.IsZero() && phase != corev1.NamespaceActive:
		return field.ErrorList{field.Invalid(path, phase, "may only be 'Active' if `deletionTimestamp` is empty")}
	case !n.DeletionTimestamp.IsZero() && phase != corev1.NamespaceTerminating:
		return field.ErrorList{
			field.Invalid(path, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty"),
		}
	}
	return nil
}
