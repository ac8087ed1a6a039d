// Package volume has what the volumes of pods and persistent volumes share: volume sources and the specs of claims.
package volume

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func ValidateHostPath(h *corev1.HostPathVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if h.Path == "" {
		errs = append(errs, field.Required(at.Child("path"), ""))
	} else {
		errs = append(errs, validate.Backsteps(h.Path, at.Child("path"))...)
	}
	if types := []corev1.HostPathType{
		corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory, corev1.HostPathFileOrCreate,
		corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev,
	}; h.Type != nil && !slices.Contains(types, *h.Type) {
		errs = append(errs, validate.NotSupported(at.Child("type"), *h.Type, types))
	}
	return errs
}

func ValidateNFS(n *corev1.NFSVolumeSource, at *field.Path) field.ErrorList {
	errs := validate.Required(n.Server, at.Child("server"), "")
	if !path.IsAbs(n.Path) {
		errs = append(errs, field.Invalid(at.Child("path"), n.Path, "must be an absolute path"))
	}
	return errs
}

// ValidateDriverName checks the name of a storage or device driver: a DNS name of at most 63 characters, in upper or
// lower case.
func ValidateDriverName(name string, path *field.Path) field.ErrorList {
	const longest = 63
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > longest {
		errs = append(errs, field.TooLong(path, name, longest))
	}
	return append(errs, validate.Invalid(path, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

// DefaultRBD sets defaults for a volume type without a driver. The API still returns what its driver assumed.
func DefaultRBD(pool, user, keyring *string) {
	value.SetEmpty(pool, "rbd")
	value.SetEmpty(user, "admin")
	value.SetEmpty(keyring, "/etc/ceph/keyring")
}

func DefaultScaleIO(mode, fs *string) {
	value.SetEmpty(mode, "ThinProvisioned")
	value.SetEmpty(fs, "xfs")
}

func DefaultAzureDisk(d *corev1.AzureDiskVolumeSource) {
	value.SetDefault(&d.CachingMode, corev1.AzureDataDiskCachingReadWrite)
	value.SetDefault(&d.Kind, corev1.AzureSharedBlobDisk)
	value.SetDefault(&d.FSType, "ext4")
	value.SetDefault(&d.ReadOnly, false)
}
