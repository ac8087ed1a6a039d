package podspec

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
	"clusterctl/daemons/kinds/volume"
)

// validateVolumes validates volumes and returns their names, which mounts refer to.
func validateVolumes(volumes []corev1.Volume, at *field.Path) (map[string]bool, field.ErrorList) {
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range volumes {
		v, where := &volumes[i], at.Index(i)
		switch {
		case v.Name == "":
			errs = append(errs, field.Required(where.Child("name"), ""))
		case names[v.Name]:
			errs = append(errs, field.Duplicate(where.Child("name"), v.Name))
		default:
			errs = append(errs, validate.DNSLabel(v.Name, where.Child("name"))...)
			names[v.Name] = true
		}
		errs = append(errs, validateVolumeSource(&v.VolumeSource, where)...)
	}
	return names, errs
}

func validateVolumeSource(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch n := countSetFields(v); {
	case n == 0:
		errs = append(errs, field.Required(at, "must specify a volume type"))
	case n > 1:
		errs = append(errs, field.Forbidden(at, "may not specify more than 1 volume type"))
	}
	if e := v.EmptyDir; e != nil && e.SizeLimit != nil && e.SizeLimit.Sign() < 0 {
		errs = append(errs, field.Forbidden(at.Child("emptyDir", "sizeLimit"),
			"SizeLimit field must be a valid resource quantity"))
	}
	if h := v.HostPath; h != nil {
		errs = append(errs, volume.ValidateHostPath(h, at.Child("hostPath"))...)
	}
	if s := v.Secret; s != nil {
		if s.SecretName == "" {
			errs = append(errs, field.Required(at.Child("secret", "secretName"), ""))
		}
		errs = append(errs, validateFileMode(s.DefaultMode, at.Child("secret", "defaultMode"))...)
		errs = append(errs, validateKeysToPaths(s.Items, at.Child("secret", "items"))...)
	}
	if c := v.ConfigMap; c != nil {
		if c.Name == "" {
			errs = append(errs, field.Required(at.Child("configMap", "name"), ""))
		}
		errs = append(errs, validateFileMode(c.DefaultMode, at.Child("configMap", "defaultMode"))...)
		errs = append(errs, validateKeysToPaths(c.Items, at.Child("configMap", "items"))...)
	}
	if c := v.PersistentVolumeClaim; c != nil && c.ClaimName == "" {
		errs = append(errs, field.Required(at.Child("persistentVolumeClaim", "claimName"), ""))
	}
	if d := v.DownwardAPI; d != nil {
		errs = append(errs, validateFileMode(d.DefaultMode, at.Child("downwardAPI", "defaultMode"))...)
		errs = append(errs, validateDownwardFiles(d.Items, at.Child("downwardAPI", "items"))...)
	}
	if e := v.Ephemeral; e != nil {
		if e.VolumeClaimTemplate == nil {
			errs = append(errs, field.Required(at.Child("ephemeral", "volumeClaimTemplate"), ""))
		} else {
			template, m := at.Child("ephemeral", "volumeClaimTemplate"), &e.VolumeClaimTemplate.ObjectMeta
			errs = append(errs, metavalidation.ValidateLabels(m.Labels, template.Child("metadata", "labels"))...)
			errs = append(errs, validate.ObjectMetaUnset(m, template.Child("metadata"), "cannot be set for an "+
				"ephemeral "+
				"volume")...)
			errs = append(errs, volume.ValidateClaim(&e.VolumeClaimTemplate.Spec, template.Child("spec"))...)
		}
	}
	if n := v.NFS; n != nil {
		errs = append(errs, volume.ValidateNFS(n, at.Child("nfs"))...)
	}
	if c := v.CSI; c != nil {
		errs = append(errs, volume.ValidateDriverName(c.Driver, at.Child("csi", "driver"))...)
	}
	if i := v.Image; i != nil {
		errs = append(errs, validate.Required(i.Reference, at.Child("image", "reference"), "")...)
		errs = append(errs, validate.Supported(i.PullPolicy,
			[]corev1.PullPolicy{corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever},
			at.Child("image", "pullPolicy"))...)
	}
	if g := v.GitRepo; g != nil {
		errs = append(errs, validate.Required(g.Repository, at.Child("gitRepo", "repository"), "")...)
		errs = append(errs, validate.DescendingPath(g.Directory, at.Child("gitRepo", "directory"))...)
	}
	errs = append(errs, volume.ValidateLegacy(v, at)...)
	if v.Projected != nil {
		errs = append(errs, validateProjected(v.Projected, at.Child("projected"))...)
	}
	return errs
}

// countSetFields returns the number of source fields that are set. Exactly one should be.
func countSetFields(source any) int {
	v, n := reflect.ValueOf(source).Elem(), 0
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			n++
		}
	}
	return n
}

func validateProjected(p *corev1.ProjectedVolumeSource, at *field.Path) field.ErrorList {
	errs := validateFileMode(p.DefaultMode, at.Child("defaultMode"))
	errs = append(errs, validateProjectedPaths(p, at)...)
	for i := range p.Sources {
		s, where := &p.Sources[i], at.Child("sources").Index(i)
		if countSetFields(s) > 1 {
			errs = append(errs, field.Forbidden(where, "may not specify more than 1 volume type"))
		}
		switch {
		case s.Secret != nil:
			if s.Secret.Name == "" {
				errs = append(errs, field.Required(where.Child("secret", "name"), ""))
			}
			errs = append(errs, validateKeysToPaths(s.Secret.Items, where.Child("secret", "items"))...)
		case s.ConfigMap != nil:
			if s.ConfigMap.Name == "" {
				errs = append(errs, field.Required(where.Child("configMap", "name"), ""))
			}
			errs = append(errs, validateKeysToPaths(s.ConfigMap.Items, where.Child("configMap", "items"))...)
		case s.DownwardAPI != nil:
			errs = append(errs, validateDownwardFiles(s.DownwardAPI.Items, where.Child("downwardAPI", "items"))...)
		case s.ServiceAccountToken != nil:
			token := where.Child("serviceAccountToken")
			if n := value.OrZero(s.ServiceAccountToken.ExpirationSeconds); n < 600 {
				errs = append(errs, field.Invalid(token.Child("expirationSeconds"), n,
					"may not specify a duration less than 10 minutes"))
			} else if n > 1<<32 {
				errs = append(errs, field.Invalid(token.Child("expirationSeconds"), n, "may not specify a duration "+
					"larger than 2^32 seconds"))
			}
			if s.ServiceAccountToken.Path == "" {
				errs = append(errs, field.Required(token.Child("path"), ""))
			} else {
				errs = append(errs, validate.ProjectedPath(s.ServiceAccountToken.Path, token.Child("path"))...)
			}
		case s.ClusterTrustBundle != nil:
			errs = append(errs, validateTrustProjection(s.ClusterTrustBundle, where.Child("clusterTrustBundle"))...)
		case s.PodCertificate != nil:
			errs = append(errs, validatePodCertificate(s.PodCertificate, where.Child("podCertificate"))...)
		}
	}
	return errs
}

// validateProjectedPaths rejects sources that write the same file. The value is the object that a source projects, or
// the path, as upstream reports it. Tokens are not compared.
func validateProjectedPaths(p *corev1.ProjectedVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	add := func(path, reported string) {
		if path != "" && seen[path] {
			errs = append(errs, field.Invalid(at, reported, "conflicting duplicate paths"))
		}
		seen[path] = true
	}
	addItems := func(items []corev1.KeyToPath, name string) {
		for _, item := range items {
			add(item.Path, name)
		}
	}
	for _, s := range p.Sources {
		switch {
		case s.Secret != nil:
			addItems(s.Secret.Items, s.Secret.Name)
		case s.ConfigMap != nil:
			addItems(s.ConfigMap.Items, s.ConfigMap.Name)
		case s.DownwardAPI != nil:
			for _, item := range s.DownwardAPI.Items {
				add(item.Path, item.Path)
			}
		case s.ClusterTrustBundle != nil:
			add(s.ClusterTrustBundle.Path, s.ClusterTrustBundle.Path)
		case s.PodCertificate != nil:
			c := s.PodCertificate
			for _, path := range []string{c.CredentialBundlePath, c.KeyPath, c.CertificateChainPath} {
				add(path, path)
			}
		}
	}
	return errs
}

func validateFileMode(mode *int32, at *field.Path) field.ErrorList {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		return field.ErrorList{field.Invalid(at, *mode, "must be a number between 0 and 0777 (octal), both inclusive")}
	}
	return nil
}

func validateKeysToPaths(items []corev1.KeyToPath, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, item := range items {
		where := at.Index(i)
		if item.Key == "" {
			errs = append(errs, field.Required(where.Child("key"), ""))
		} else {
			errs = append(errs, validate.Invalid(where.Child("key"), item.Key, validation.IsConfigMapKey(item.Key))...)
		}
		if item.Path == "" {
			errs = append(errs, field.Required(where.Child("path"), ""))
		} else {
			errs = append(errs, validate.ProjectedPath(item.Path, where.Child("path"))...)
		}
		errs = append(errs, validateFileMode(item.Mode, where.Child("mode"))...)
	}
	return errs
}

func validateDownwardFiles(items []corev1.DownwardAPIVolumeFile, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, item := range items {
		where := at.Index(i)
		if item.Path == "" {
			errs = append(errs, field.Required(where.Child("path"), ""))
		} else {
			errs = append(errs, validate.ProjectedPath(item.Path, where.Child("path"))...)
		}
		switch {
		case item.FieldRef != nil && item.ResourceFieldRef != nil:
			errs = append(errs, field.Invalid(where, "resource",
				"fieldRef and resourceFieldRef can not be specified simultaneously"))
		case item.FieldRef == nil && item.ResourceFieldRef == nil:
			errs = append(errs, field.Required(where, "one of fieldRef and resourceFieldRef is required"))
		case item.ResourceFieldRef != nil && item.ResourceFieldRef.ContainerName == "":
			errs = append(errs, field.Required(where.Child("resourceFieldRef", "containerName"), ""))
		case item.ResourceFieldRef != nil:
			errs = append(errs, validateResourceField(item.ResourceFieldRef, where.Child("resourceFieldRef"))...)
		default:
			errs = append(errs, validateFieldSelector(item.FieldRef, fileFields, where.Child("fieldRef"))...)
		}
		errs = append(errs, validateFileMode(item.Mode, where.Child("mode"))...)
	}
	return errs
}

// fileFields lists the pod fields that a file may contain, besides single labels and annotations: those that may change
// while the pod runs, and its names.
var fileFields = []string{
	"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
}
