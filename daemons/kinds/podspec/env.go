package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
)

func validateEnv(c *corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, e := range c.Env {
		where := at.Child("env").Index(i)
		if e.Name == "" {
			errs = append(errs, field.Required(where.Child("name"), ""))
		} else {
			errs = append(errs,
				validate.Invalid(where.Child("name"), e.Name, validation.IsRelaxedEnvVarName(e.Name))...)
		}
		if e.ValueFrom != nil {
			errs = append(errs, validateEnvSource(e, where.Child("valueFrom"))...)
		}
	}
	for i, e := range c.EnvFrom {
		where := at.Child("envFrom").Index(i)
		if e.Prefix != "" {
			errs = append(errs,
				validate.Invalid(where.Child("prefix"), e.Prefix, validation.IsRelaxedEnvVarName(e.Prefix))...)
		}
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

// downwardFields lists the pod fields that a container may read, besides single labels and annotations.
var downwardFields = []string{
	"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
	"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
}

func validateEnvSource(e corev1.EnvVar, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	sources := 0
	if f := e.ValueFrom.FieldRef; f != nil {
		sources++
		errs = append(errs, validateFieldSelector(f, downwardFields, at.Child("fieldRef"))...)
	}
	if r := e.ValueFrom.ResourceFieldRef; r != nil {
		sources++
		errs = append(errs, validateResourceField(r, at.Child("resourceFieldRef"))...)
	}
	key := func(name, k, which string) {
		sources++
		if name == "" {
			errs = append(errs, field.Required(at.Child(which, "name"), ""))
		}
		if k == "" {
			errs = append(errs, field.Required(at.Child(which, "key"), ""))
		} else {
			errs = append(errs, validate.Invalid(at.Child(which, "key"), k, validation.IsConfigMapKey(k))...)
		}
	}
	if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
		key(r.Name, r.Key, "configMapKeyRef")
	}
	if r := e.ValueFrom.SecretKeyRef; r != nil {
		key(r.Name, r.Key, "secretKeyRef")
	}
	if f := e.ValueFrom.FileKeyRef; f != nil {
		sources++
		where := at.Child("fileKeyRef")
		errs = append(errs, validate.Required(f.Key, where.Child("key"), "")...)
		errs = append(errs, validate.Required(f.VolumeName, where.Child("volumeName"), "")...)
		if f.Path == "" {
			errs = append(errs, field.Required(where.Child("path"), ""))
		} else {
			errs = append(errs, validate.DescendingPath(f.Path, where.Child("path"))...)
		}
	}
	switch {
	case sources == 0:
		errs = append(errs, field.Invalid(at, "",
			"must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"))
	case e.Value != "":
		errs = append(errs, field.Invalid(at, "", "may not be specified when `value` is not empty"))
	case sources > 1:
		errs = append(errs, field.Invalid(at, "", "may not have more than one field specified at a time"))
	}
	return errs
}

// validateFieldSelector requires one of the given fields of a pod, or a single label or annotation. v1 is the only
// version whose fields can be named.
func validateFieldSelector(f *corev1.ObjectFieldSelector, fields []string, at *field.Path) field.ErrorList {
	base, key, hasKey := strings.Cut(strings.TrimSuffix(f.FieldPath, "']"), "['")
	switch {
	case f.FieldPath == "":
		return field.ErrorList{field.Required(at.Child("fieldPath"), "")}
	case f.APIVersion != "v1":
		return field.ErrorList{field.Invalid(at.Child("fieldPath"), f.FieldPath,
			"error converting fieldPath: unsupported pod version: "+f.APIVersion)}
	case hasKey && strings.HasSuffix(f.FieldPath, "']") && base == "metadata.annotations":
		key = strings.ToLower(key)
		return validate.Invalid(at, key, validation.IsQualifiedName(key))
	case hasKey && strings.HasSuffix(f.FieldPath, "']") && base == "metadata.labels":
		return validate.Invalid(at, key, validation.IsQualifiedName(key))
	case !slices.Contains(fields, f.FieldPath):
		return field.ErrorList{validate.NotSupported(at.Child("fieldPath"), f.FieldPath, fields)}
	}
	return nil
}

// resourceFields lists the resource fields that a container may read.
var resourceFields = []string{
	"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage",
	"requests.memory",
}

func validateResourceField(r *corev1.ResourceFieldSelector, at *field.Path) field.ErrorList {
	_, name, _ := strings.Cut(r.Resource, ".")
	switch {
	case r.Resource == "":
		return field.ErrorList{field.Required(at.Child("resource"), "")}
	case strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) &&
		(strings.HasPrefix(r.Resource, "limits.") || strings.HasPrefix(r.Resource, "requests.")):
	case !slices.Contains(resourceFields, r.Resource):
		return field.ErrorList{validate.NotSupported(at.Child("resource"), r.Resource, resourceFields)}
	}
	units := []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	if name == "cpu" {
		units = []string{"1m", "1"}
	}
	if d := r.Divisor.String(); d != "0" && !slices.Contains(units, d) {
		return field.ErrorList{
			field.Invalid(at.Child("divisor"), d,
				"only divisor's values "+strings.Join(units, ", ")+" are supported with the "+name+" resource"),
		}
	}
	return nil
}
