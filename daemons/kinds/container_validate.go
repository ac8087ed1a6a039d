package kinds

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateContainers checks all containers of a pod, among which names are unique.
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
		errs = append(errs, validateContainer(c, volumes, where)...)
		if !isSidecar(c) {
			errs = append(errs, onlySidecars(c, where)...)
		}
	}
	for i := range spec.Containers {
		c, where := &spec.Containers[i], at.Child("containers").Index(i)
		named(c.Name, where)
		errs = append(errs, validateContainer(c, volumes, where)...)
		for j, p := range c.Ports {
			port := where.Child("ports").Index(j)
			if p.HostPort != 0 {
				if id := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort); hostPorts[id] {
					errs = append(errs, field.Duplicate(port.Child("hostPort"), id))
				} else {
					hostPorts[id] = true
				}
			}
			if spec.HostNetwork && p.HostPort != p.ContainerPort {
				errs = append(errs, field.Invalid(port.Child("containerPort"), p.ContainerPort, "must match `hostPort` when `hostNetwork` is true"))
			}
		}
	}
	for i := range spec.EphemeralContainers {
		c, where := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon), at.Child("ephemeralContainers").Index(i)
		named(c.Name, where)
		errs = append(errs, validateContainer(&c, volumes, where)...)
	}
	return errs
}

// onlySidecars refuses what makes no sense for a container that runs to its end
// before the others start.
func onlySidecars(c *corev1.Container, at *field.Path) field.ErrorList {
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

func validateContainer(c *corev1.Container, volumes map[string]bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	} else {
		errs = append(errs, dns1123Label(c.Name, at.Child("name"))...)
	}
	if c.Image == "" {
		errs = append(errs, field.Required(at.Child("image"), ""))
	} else if strings.TrimSpace(c.Image) != c.Image {
		errs = append(errs, field.Invalid(at.Child("image"), c.Image, "must not have leading or trailing whitespace"))
	}
	errs = append(errs, supported(c.TerminationMessagePolicy, []corev1.TerminationMessagePolicy{
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError,
	}, at.Child("terminationMessagePolicy"))...)
	errs = append(errs, supported(c.ImagePullPolicy, []corev1.PullPolicy{
		corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever,
	}, at.Child("imagePullPolicy"))...)
	errs = append(errs, validatePorts(c.Ports, at.Child("ports"))...)
	errs = append(errs, validateEnv(c, at)...)
	errs = append(errs, validateMounts(c, volumes, at)...)
	errs = append(errs, validateRequirements(&c.Resources, at.Child("resources"))...)
	errs = append(errs, validateProbe(c.LivenessProbe, true, at.Child("livenessProbe"))...)
	errs = append(errs, validateProbe(c.ReadinessProbe, false, at.Child("readinessProbe"))...)
	errs = append(errs, validateProbe(c.StartupProbe, true, at.Child("startupProbe"))...)
	if c.Lifecycle != nil {
		errs = append(errs, validateHook(c.Lifecycle.PostStart, at.Child("lifecycle", "postStart"))...)
		errs = append(errs, validateHook(c.Lifecycle.PreStop, at.Child("lifecycle", "preStop"))...)
	}
	if s := c.SecurityContext; s != nil {
		where := at.Child("securityContext")
		for _, id := range []struct {
			name string
			v    *int64
		}{{"runAsUser", s.RunAsUser}, {"runAsGroup", s.RunAsGroup}} {
			if id.v != nil && (*id.v < 0 || *id.v > math.MaxInt32) {
				errs = append(errs, field.Invalid(where.Child(id.name), *id.v, validation.InclusiveRangeError(0, math.MaxInt32)))
			}
		}
		if s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation && value(s.Privileged) {
			errs = append(errs, field.Invalid(where, s, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
		}
		errs = append(errs, validateSeccomp(s.SeccompProfile, where.Child("seccompProfile"))...)
	}
	return errs
}

func validatePorts(ports []corev1.ContainerPort, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, p := range ports {
		where := at.Index(i)
		if p.Name != "" {
			if msgs := validation.IsValidPortName(p.Name); len(msgs) > 0 {
				errs = append(errs, invalid(where.Child("name"), p.Name, msgs)...)
			} else if names[p.Name] {
				errs = append(errs, field.Duplicate(where.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(where.Child("containerPort"), ""))
		} else {
			errs = append(errs, portNumber(int(p.ContainerPort), where.Child("containerPort"))...)
		}
		if p.HostPort != 0 {
			errs = append(errs, portNumber(int(p.HostPort), where.Child("hostPort"))...)
		}
		errs = append(errs, protocol(p.Protocol, where.Child("protocol"))...)
	}
	return errs
}

func validateEnv(c *corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, e := range c.Env {
		where := at.Child("env").Index(i)
		if e.Name == "" {
			errs = append(errs, field.Required(where.Child("name"), ""))
		} else {
			errs = append(errs, invalid(where.Child("name"), e.Name, validation.IsRelaxedEnvVarName(e.Name))...)
		}
		if e.ValueFrom != nil {
			errs = append(errs, validateEnvSource(e, where.Child("valueFrom"))...)
		}
	}
	for i, e := range c.EnvFrom {
		where := at.Child("envFrom").Index(i)
		switch {
		case e.ConfigMapRef != nil && e.SecretRef != nil:
			errs = append(errs, field.Invalid(where, "", "may not have more than one field specified at a time"))
		case e.ConfigMapRef != nil && e.ConfigMapRef.Name == "":
			errs = append(errs, field.Required(where.Child("configMapRef", "name"), ""))
		case e.SecretRef != nil && e.SecretRef.Name == "":
			errs = append(errs, field.Required(where.Child("secretRef", "name"), ""))
		case e.ConfigMapRef == nil && e.SecretRef == nil:
			errs = append(errs, field.Invalid(where, "", "must specify one of: `configMapRef` or `secretRef`"))
		}
	}
	return errs
}

// downwardFields are what a container may learn of its pod, besides single labels
// and annotations.
var downwardFields = []string{
	"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
	"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
}

func validateEnvSource(e corev1.EnvVar, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	sources := 0
	if f := e.ValueFrom.FieldRef; f != nil {
		sources++
		single := strings.HasPrefix(f.FieldPath, "metadata.labels['") || strings.HasPrefix(f.FieldPath, "metadata.annotations['")
		if f.FieldPath == "" {
			errs = append(errs, field.Required(at.Child("fieldRef", "fieldPath"), ""))
		} else if !single && !slices.Contains(downwardFields, f.FieldPath) {
			errs = append(errs, notSupported(at.Child("fieldRef", "fieldPath"), f.FieldPath, downwardFields))
		}
	}
	if r := e.ValueFrom.ResourceFieldRef; r != nil {
		sources++
		if r.Resource == "" {
			errs = append(errs, field.Required(at.Child("resourceFieldRef", "resource"), ""))
		}
	}
	key := func(name, k, which string) {
		sources++
		if name == "" {
			errs = append(errs, field.Required(at.Child(which, "name"), ""))
		}
		if k == "" {
			errs = append(errs, field.Required(at.Child(which, "key"), ""))
		} else {
			errs = append(errs, invalid(at.Child(which, "key"), k, validation.IsConfigMapKey(k))...)
		}
	}
	if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
		key(r.Name, r.Key, "configMapKeyRef")
	}
	if r := e.ValueFrom.SecretKeyRef; r != nil {
		key(r.Name, r.Key, "secretKeyRef")
	}
	if e.ValueFrom.FileKeyRef != nil {
		sources++
	}
	switch {
	case sources == 0:
		errs = append(errs, field.Invalid(at, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"))
	case e.Value != "":
		errs = append(errs, field.Invalid(at, "", "may not be specified when `value` is not empty"))
	case sources > 1:
		errs = append(errs, field.Invalid(at, "", "may not have more than one field specified at a time"))
	}
	return errs
}

func validateMounts(c *corev1.Container, volumes map[string]bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, m := range c.VolumeMounts {
		where := at.Child("volumeMounts").Index(i)
		if m.Name == "" {
			errs = append(errs, field.Required(where.Child("name"), ""))
		} else if !volumes[m.Name] {
			errs = append(errs, field.NotFound(where.Child("name"), m.Name))
		}
		if m.MountPath == "" {
			errs = append(errs, field.Required(where.Child("mountPath"), ""))
		} else if seen[m.MountPath] {
			errs = append(errs, field.Invalid(where.Child("mountPath"), m.MountPath, "must be unique"))
		}
		seen[m.MountPath] = true
		for name, sub := range map[string]string{"subPath": m.SubPath, "subPathExpr": m.SubPathExpr} {
			if sub != "" {
				errs = append(errs, descending(sub, where.Child(name))...)
			}
		}
		if m.SubPath != "" && m.SubPathExpr != "" {
			errs = append(errs, field.Invalid(where.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
		}
	}
	for i, d := range c.VolumeDevices {
		if where := at.Child("volumeDevices").Index(i); d.Name != "" && !volumes[d.Name] {
			errs = append(errs, field.NotFound(where.Child("name"), d.Name))
		}
	}
	return errs
}

// descending demands a relative path that stays below where it starts.
func descending(p string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if path.IsAbs(p) {
		errs = append(errs, field.Invalid(at, p, "must be a relative path"))
	}
	return append(errs, noBacksteps(p, at)...)
}

func noBacksteps(p string, at *field.Path) field.ErrorList {
	if slices.Contains(strings.Split(p, "/"), "..") {
		return field.ErrorList{field.Invalid(at, p, "must not contain '..'")}
	}
	return nil
}

// portOrName checks a port of a probe or service: a number, or the name of one.
func portOrName(p intstr.IntOrString, at *field.Path) field.ErrorList {
	if p.Type == intstr.String {
		return invalid(at, p.StrVal, validation.IsValidPortName(p.StrVal))
	}
	return portNumber(int(p.IntVal), at)
}
