package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/podspec"
	"clusterctl/daemons/kinds/value"
)

// ValidateResize checks an update through the resize subresource. Only cpu and memory of containers, of sidecars and of
// the whole pod may change. None of them can be removed, and the QoS class cannot change.
func ValidateResize(obj, old runtime.Object) field.ErrorList {
	pod, ok := obj.(*corev1.Pod)
	previous, also := old.(*corev1.Pod)
	if !ok || !also {
		return nil
	}
	path := field.NewPath("spec")
	if _, static := previous.Annotations[corev1.MirrorPodAnnotationKey]; static {
		return field.ErrorList{field.Forbidden(field.NewPath("metadata"), "static pods cannot be resized")}
	}
	errs := podspec.ValidatePod(pod)
	if current, before := QOSClass(pod), QOSClass(previous); current != before {
		errs = append(errs, field.Invalid(path, current, "Pod QOS Class may not change as a result of resizing"))
	}
	if len(pod.Spec.Containers) != len(previous.Spec.Containers) ||
		len(pod.Spec.InitContainers) != len(previous.Spec.InitContainers) {
		return append(errs, field.Forbidden(path, "containers may not be added or removed on resize"))
	}
	rest := pod.Spec.DeepCopy()
	for i := range rest.Containers {
		before := &previous.Spec.Containers[i].Resources
		errs = append(errs, forbidRemoval(&rest.Containers[i].Resources, before,
			path.Child("containers").Index(i).Child("resources"))...)
		restoreResources(&rest.Containers[i].Resources, before)
	}
	for i := range rest.InitContainers {
		if value.OrZero(rest.InitContainers[i].RestartPolicy) != corev1.ContainerRestartPolicyAlways {
			continue
		}
		before := &previous.Spec.InitContainers[i].Resources
		errs = append(errs, forbidRemoval(&rest.InitContainers[i].Resources, before,
			path.Child("initContainers").Index(i).Child("resources"))...)
		restoreResources(&rest.InitContainers[i].Resources, before)
	}
	if previous.Spec.Resources != nil {
		at := path.Child("resources")
		if rest.Resources == nil {
			errs = append(errs, field.Forbidden(at, "pod-level resources cannot be removed"))
			rest.Resources = &corev1.ResourceRequirements{}
		}
		errs = append(errs, forbidRemoval(rest.Resources, previous.Spec.Resources, at)...)
		restoreResources(rest.Resources, previous.Spec.Resources)
	} else if rest.Resources != nil {
		none := corev1.ResourceRequirements{}
		if restoreResources(rest.Resources, &none); equality.Semantic.DeepEqual(*rest.Resources, none) {
			rest.Resources = nil
		}
	}
	if !equality.Semantic.DeepEqual(*rest, previous.Spec) {
		errs = append(errs, field.Forbidden(path, "only cpu and memory resources are mutable"))
	}
	return errs
}

// forbidRemoval rejects the removal of cpu or memory.
func forbidRemoval(after, before *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, side := range []struct {
		name, text    string
		after, before corev1.ResourceList
	}{{"limits", "resource limits cannot be removed", after.Limits, before.Limits},
		{"requests", "resource requests cannot " +
			"be removed", after.Requests, before.Requests}} {
		for name := range side.before {
			if _, ok := side.after[name]; !ok {
				errs = append(errs, field.Forbidden(at.Child(side.name).Key(string(name)), side.text))
			}
		}
	}
	return errs
}

// restoreResources restores the previous cpu and memory, so that a comparison shows all other differences.
func restoreResources(after, before *corev1.ResourceRequirements) {
	for _, side := range []struct {
		to   *corev1.ResourceList
		from corev1.ResourceList
	}{{&after.Limits, before.Limits}, {&after.Requests, before.Requests}} {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if q, ok := side.from[name]; ok {
				if *side.to == nil {
					*side.to = corev1.ResourceList{}
				}
				(*side.to)[name] = q
			} else {
				delete(*side.to, name)
			}
		}
	}
}
