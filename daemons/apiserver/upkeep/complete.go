package upkeep

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// autoUpdateAnnotation is the annotation with which users keep the server from changing a default role.
const autoUpdateAnnotation = rbacv1.AutoUpdateAnnotationKey

// Complete returns a stored default object with its missing parts added: the rules of roles, and the subjects of
// bindings. Additions by users stay. Objects of most other kinds are returned unchanged.
func Complete(live, want runtime.Object) runtime.Object {
	switch want := want.(type) {
	case *rbacv1.ClusterRole:
		current, ok := live.(*rbacv1.ClusterRole)
		if !ok || current.Annotations[autoUpdateAnnotation] == "false" {
			return live.DeepCopyObject()
		}
		current = current.DeepCopy()
		if want.AggregationRule != nil {
			current.AggregationRule = want.AggregationRule
		}
		current.Rules = appendMissing(current.Rules, want.Rules)
		current.Labels, current.Annotations = mergeMaps(current.Labels, want.Labels),
			mergeMaps(current.Annotations, want.Annotations)
		return current
	case *corev1.ConfigMap:
		current, ok := live.(*corev1.ConfigMap)
		if !ok || hasValidDay(current, want) {
			return live.DeepCopyObject()
		}
		current = current.DeepCopy()
		current.Data = want.Data
		return current
	case *flowcontrolv1.FlowSchema:
		current, ok := live.(*flowcontrolv1.FlowSchema)
		if !ok || !isAutoUpdated(current) && !isMandatory(want) {
			return live.DeepCopyObject()
		}
		current = current.DeepCopy()
		current.Spec = *want.Spec.DeepCopy()
		return current
	case *flowcontrolv1.PriorityLevelConfiguration:
		current, ok := live.(*flowcontrolv1.PriorityLevelConfiguration)
		if !ok || !isAutoUpdated(current) && !isMandatory(want) {
			return live.DeepCopyObject()
		}
		current = current.DeepCopy()
		exempt := current.Spec.Exempt // users may set the capacity of the exempt level
		if current.Spec = *want.Spec.DeepCopy(); current.Spec.Exempt != nil && exempt != nil {
			current.Spec.Exempt = exempt
		}
		return current
	case *rbacv1.Role:
		current, ok := live.(*rbacv1.Role)
		if !ok || current.Annotations[autoUpdateAnnotation] == "false" {
			return live.DeepCopyObject()
		}
		current = current.DeepCopy()
		current.Rules = appendMissing(current.Rules, want.Rules)
		return current
	case *rbacv1.ClusterRoleBinding:
		current, ok := live.(*rbacv1.ClusterRoleBinding)
		if !ok || current.Annotations[autoUpdateAnnotation] == "false" || current.RoleRef != want.RoleRef {
			return live.DeepCopyObject()
		}
		current = current.DeepCopy()
		current.Subjects = appendMissing(current.Subjects, want.Subjects)
		return current
	case *rbacv1.RoleBinding:
		current, ok := live.(*rbacv1.RoleBinding)
		if !ok || current.Annotations[autoUpdateAnnotation] == "false" || current.RoleRef != want.RoleRef {
			return live.DeepCopyObject()
		}
		current = current.DeepCopy()
		current.Subjects = appendMissing(current.Subjects, want.Subjects)
		return current
	}
	return live.DeepCopyObject()
}

// isAutoUpdated reports whether users let the server update a flow control object.
func isAutoUpdated(o metav1.Object) bool {
	return o.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey] == "true"
}

// isMandatory reports whether a flow control object must always have its default content.
func isMandatory(o metav1.Object) bool {
	return o.GetName() == flowcontrolv1.FlowSchemaNameExempt || o.GetName() == flowcontrolv1.FlowSchemaNameCatchAll
}

// appendMissing returns have, with the elements of want appended that it lacks.
func appendMissing[T any](existing, want []T) []T {
	for _, w := range want {
		if !slices.ContainsFunc(existing, func(h T) bool { return equality.Semantic.DeepEqual(h, w) }) {
			existing = append(existing, w)
		}
	}
	return existing
}

func mergeMaps(existing, want map[string]string) map[string]string {
	for k, v := range want {
		if _, ok := existing[k]; !ok {
			if existing == nil {
				existing = map[string]string{}
			}
			existing[k] = v
		}
	}
	return existing
}
