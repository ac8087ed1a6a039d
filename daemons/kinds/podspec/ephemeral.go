package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/value"
)

// ValidateEphemeralContainers checks an update of the ephemeral containers: they can be added, and not changed or
// removed.
func ValidateEphemeralContainers(obj, old runtime.Object) field.ErrorList {
	pod, ok := obj.(*corev1.Pod)
	before, also := old.(*corev1.Pod)
	if !ok || !also {
		return nil
	}
	at := field.NewPath("spec", "ephemeralContainers")
	errs := validateSpec(&pod.Spec, field.NewPath("spec"))
	next := map[string]corev1.EphemeralContainer{}
	for _, c := range pod.Spec.EphemeralContainers {
		next[c.Name] = c
	}
	for _, c := range before.Spec.EphemeralContainers {
		if now, ok := next[c.Name]; !ok {
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("existing ephemeral containers %q may not be removed",
				c.Name)))
		} else if !value.Same(now, c) {
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("existing ephemeral containers %q may not be "+
				"changed", c.Name)))
		}
	}
	return errs
}

// rejectEphemeralFields rejects fields that ephemeral containers cannot have: they are not restarted, get no requests,
// and have no reserved resources.
func rejectEphemeralFields(c *corev1.EphemeralContainer, spec *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	const text = "cannot be set for an Ephemeral Container"
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"ports", len(c.Ports) > 0},
		{"resources", len(c.Resources.Limits)+len(c.Resources.Requests)+len(c.Resources.Claims) > 0},
		{"resizePolicy", len(c.ResizePolicy) > 0}, {"restartPolicy", c.RestartPolicy != nil},
		{"lifecycle", c.Lifecycle != nil},
		{"livenessProbe", c.LivenessProbe != nil}, {"readinessProbe", c.ReadinessProbe != nil},
		{"startupProbe", c.StartupProbe != nil},
	} {
		if f.set {
			errs = append(errs, field.Forbidden(at.Child(f.name), text))
		}
	}
	for i, m := range c.VolumeMounts {
		if m.SubPath != "" {
			errs = append(errs, field.Forbidden(at.Child("volumeMounts").Index(i).Child("subPath"), text))
		}
		if m.SubPathExpr != "" {
			errs = append(errs, field.Forbidden(at.Child("volumeMounts").Index(i).Child("subPathExpr"), text))
		}
	}
	if c.TargetContainerName == "" {
		return errs
	}
	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			if list[i].Name == c.TargetContainerName {
				return errs
			}
		}
	}
	return append(errs, field.NotFound(at.Child("targetContainerName"), c.TargetContainerName))
}
