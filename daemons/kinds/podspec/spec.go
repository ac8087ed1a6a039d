// Package podspec sets the defaults of pod specs, validates them, and returns warnings about them. Pods and all kinds
// with a pod template use it.
package podspec

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// SpecOf returns the spec of a pod or of an object's pod template, or nil for other kinds.
func SpecOf(obj runtime.Object) *corev1.PodSpec {
	switch o := obj.(type) {
	case *corev1.Pod:
		return &o.Spec
	case *corev1.PodTemplate:
		return &o.Template.Spec
	case *corev1.ReplicationController:
		if o.Spec.Template != nil {
			return &o.Spec.Template.Spec
		}
	case *appsv1.ReplicaSet:
		return &o.Spec.Template.Spec
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec
	case *appsv1.DaemonSet:
		return &o.Spec.Template.Spec
	case *appsv1.StatefulSet:
		return &o.Spec.Template.Spec
	case *batchv1.Job:
		return &o.Spec.Template.Spec
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template.Spec
	}
	return nil
}

// WithOldNodeAffinity returns updated with the node affinity of old, so that a comparison shows all other differences.
func WithOldNodeAffinity(updated, old *corev1.Affinity) *corev1.Affinity {
	var out corev1.Affinity
	if updated != nil {
		out = *updated
	}
	out.NodeAffinity = nil
	if old != nil {
		out.NodeAffinity = old.NodeAffinity
	}
	if out == (corev1.Affinity{}) && (old == nil || *old == corev1.Affinity{}) {
		return old
	}
	return &out
}
