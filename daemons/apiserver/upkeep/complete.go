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
		have, ok := live.(*rbacv1.ClusterRole)
		if !ok || have.Annotations[autoUpdateAnnotation] == "false" {
			return live.DeepCopyObject()
		}
		have = have.DeepCopy()
		if want.AggregationRule != nil {
			have.AggregationRule = want.AggregationRule
		}
		have.Rules = appendMissing(have.Rules, want.Rules)
		have.Labels, have.Annotations = mergeMaps(have.Labels, want.Labels),
			mergeMaps(have.Annotations, want.Annotations)
		return have
	case *corev1.ConfigMap:
		have, ok := live.(*corev1.ConfigMap)
		if !ok || hasValidDay(have, want) {
			return live.DeepCopyObject()
		}
		have = have.DeepCopy()
		have.Data = want.Data
		return have
	case *flowcontrolv1.FlowSchema:
		have, ok := live.(*flowcontrolv1.FlowSchema)
		if !ok || !isAutoUpdated(have) && !isMandatory(want) {
			return live.DeepCopyObject()
		}
		have = have.DeepCopy()
		have.Spec = *want.Spec.DeepCopy()
		return have
	case *flowcontrolv1.PriorityLevelConfiguration:
		have, ok := live.(*flowcontrolv1.PriorityLevelConfiguration)
		if !ok || !isAutoUpdated(have) && !isMandatory(want) {
			return live.DeepCopyObject()
		}
		have = have.DeepCopy()
		exempt := have.Spec.Exempt // users may set the capacity of the exempt level
		if have.Spec = *want.Spec.DeepCopy(); have.Spec.Exempt != nil && exempt != nil {
			have.Spec.Exempt = exempt
		}
		return have
	case *rbacv1.Role:
		have, ok := live.(*rbacv1.Role)
		if !ok || have.Annotations[autoUpdateAnnotation] == "false" {
			return live.DeepCopyObject()
		}
		have = have.DeepCopy()
		have.Rules = appendMissing(have.Rules, want.Rules)
		return have
	case *rbacv1.ClusterRoleBinding:
		have, ok := live.(*rbacv1.ClusterRoleBinding)
		if !ok || have.Annotations[autoUpdateAnnotation] == "false" || have.RoleRef != want.RoleRef {
			return live.DeepCopyObject()
		}
		have = have.DeepCopy()
		have.Subjects = appendMissing(have.Subjects, want.Subjects)
		return have
	case *rbacv1.RoleBinding:
		have, ok := live.(*rbacv1.RoleBinding)
		if !ok || have.Annotations[autoUpdateAnnotation] == "false" || have.RoleRef != want.RoleRef {
			return live.DeepCopyObject()
		}
		have = have.DeepCopy()
		have.Subjects = appendMissing(have.Subjects, want.Subjects)
		return have
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
func appendMissing[T any](have, want []T) []T {
	for _, w := range want {
		if !slices.ContainsFunc(have, func(h T) bool { return equality.Semantic.DeepEqual(h, w) }) {
			have = append(have, w)
		}
	}
	return have
}

func mergeMaps(have, want map[string]string) map[string]string {
	for k, v := range want {
		if _, ok := have[k]; !ok {
			if have == nil {
				have = map[string]string{}
			}
			have[k] = v
		}
	}
	return have
}
