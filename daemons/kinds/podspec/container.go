package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
)

// validateContainers checks all containers of a pod. Names must be unique among them.
func validateContainers(spec *corev1.PodSpec, volumes map[string]bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(spec.Containers) == 0 {
		errs = append(errs, field.Required(at.Child("containers"), ""))
	}
	names, hostPorts := map[string]bool{}, map[string]bool{}
	named := func(name string, where *field.Path) {
		if names[name] {
			errs = append(errs, field.Duplicate(where.Child("name"), name))
		}
		names[name] = name != ""
	}
	for i := range spec.InitContainers {
		c, where := &spec.InitContainers[i], at.Child("initContainers").Index(i)
		named(c.Name, where)
		errs = append(errs, validateContainer(c, spec, volumes, where)...)
		if !IsSidecar(c) {
			errs = append(errs, rejectSidecarFields(c, where)...)
		}
	}
	for i := range spec.Containers {
		c, where := &spec.Containers[i], at.Child("containers").Index(i)
		named(c.Name, where)
		errs = append(errs, validateContainer(c, spec, volumes, where)...)
		for j, p := range c.Ports {
			port := where.Child("ports").Index(j)
			if p.HostPort != 0 {
				if id := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort); hostPorts[id] {
					errs = append(errs, field.Duplicate(port.Child("hostPort"), id))
				} else {
					hostPorts[id] = true
				}
			}
			// A pod's host port has been set before. A template's is set when the pod is created.
			if spec.HostNetwork && p.HostPort != 0 && p.HostPort != p.ContainerPort {
				errs = append(errs, field.Invalid(port.Child("hostPort"), p.HostPort,
					"must match `containerPort` when `hostNetwork` is true"))
			}
		}
	}
	for i := range spec.EphemeralContainers {
		c, where := corev1.Container(
			spec.EphemeralContainers[i].EphemeralContainerCommon,
		), at.Child("ephemeralContainers").
			Index(i)
		named(c.Name, where)
		errs = append(errs, validateContainer(&c, spec, volumes, where)...)
		errs = append(errs, rejectEphemeralFields(&spec.EphemeralContainers[i], spec, where)...)
	}
	return errs
}

// rejectSidecarFields rejects fields that are useless for an init container that ends before the others start.
func rejectSidecarFields(c *corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	const text = "may not be set for init containers without restartPolicy=Always"
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"lifecycle", c.Lifecycle != nil}, {"livenessProbe", c.LivenessProbe != nil},
		{"readinessProbe", c.ReadinessProbe != nil}, {"startupProbe", c.StartupProbe != nil},
	} {
		if f.set {
			errs = append(errs, field.Forbidden(at.Child(f.name), text))
		}
	}
	return errs
}

func validateContainer(
	c *corev1.Container,
	spec *corev1.PodSpec,
	volumes map[string]bool,
	at *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	if c.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	} else {
		errs = append(errs, validate.DNSLabel(c.Name, at.Child("name"))...)
	}
	errs = append(errs, ValidateImage(c.Image, at.Child("image"))...)
	errs = append(errs, validate.Supported(c.TerminationMessagePolicy, []corev1.TerminationMessagePolicy{
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError,
	}, at.Child("terminationMessagePolicy"))...)
	errs = append(errs, validate.Supported(c.ImagePullPolicy, []corev1.PullPolicy{
		corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever,
	}, at.Child("imagePullPolicy"))...)
	if len(c.Ports) > 0 {
		errs = append(errs, validatePorts(c.Ports, at.Child("ports"))...)
	}
	errs = append(errs, validateEnv(c, at)...)
	errs = append(errs, validateMounts(c, spec, volumes, at)...)
	errs = append(errs, validateRequirements(&c.Resources, at.Child("resources"))...)
	if c.LivenessProbe != nil {
		errs = append(errs, validateProbe(c.LivenessProbe, true, at.Child("livenessProbe"))...)
	}
	if c.ReadinessProbe != nil {
		errs = append(errs, validateProbe(c.ReadinessProbe, false, at.Child("readinessProbe"))...)
	}
	if c.StartupProbe != nil {
		errs = append(errs, validateProbe(c.StartupProbe, true, at.Child("startupProbe"))...)
	}
	if c.Lifecycle != nil {
		grace := spec.TerminationGracePeriodSeconds
		errs = append(errs, validateHook(c.Lifecycle.PostStart, grace, at.Child("lifecycle", "postStart"))...)
		errs = append(errs, validateHook(c.Lifecycle.PreStop, grace, at.Child("lifecycle", "preStop"))...)
	}
	errs = append(errs, validateRestarts(c, at)...)
	errs = append(errs, validateResizePolicies(c, spec, at.Child("resizePolicy"))...)
	errs = append(errs, validateStopSignal(c, spec, at)...)
	if len(c.Resources.Claims) > 0 {
		errs = append(errs, validateContainerClaims(&c.Resources, spec, at.Child("resources", "claims"))...)
	}
	if c.SecurityContext != nil {
		errs = append(errs, validateContainerSecurity(c.SecurityContext, spec, at.Child("securityContext"))...)
	}
	return errs
}

// ValidateImage checks the image of a container.
func ValidateImage(image string, at *field.Path) field.ErrorList {
	switch {
	case image == "":
		return field.ErrorList{field.Required(at, "")}
	case strings.TrimSpace(image) != image:
		return field.ErrorList{field.Invalid(at, image, "must not have leading or trailing whitespace")}
	}
	return nil
}

func validatePorts(ports []corev1.ContainerPort, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, p := range ports {
		where := at.Index(i)
		if p.Name != "" {
			if msgs := validation.IsValidPortName(p.Name); len(msgs) > 0 {
				errs = append(errs, validate.Invalid(where.Child("name"), p.Name, msgs)...)
			} else if names[p.Name] {
				errs = append(errs, field.Duplicate(where.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(where.Child("containerPort"), ""))
		} else {
			errs = append(errs, validate.PortNumber(int(p.ContainerPort), where.Child("containerPort"))...)
		}
		if p.HostPort != 0 {
			errs = append(errs, validate.PortNumber(int(p.HostPort), where.Child("hostPort"))...)
		}
		errs = append(errs, validate.Protocol(p.Protocol, where.Child("protocol"))...)
	}
	return errs
}

// validatePortOrName checks a port of a probe or service: a number or a name.
func validatePortOrName(p intstr.IntOrString, at *field.Path) field.ErrorList {
	if p.Type == intstr.String {
		return validate.Invalid(at, p.StrVal, validation.IsValidPortName(p.StrVal))
	}
	return validate.PortNumber(int(p.IntVal), at)
}
