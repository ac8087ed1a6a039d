package kinds

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateHostPath(h *corev1.HostPathVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if h.Path == "" {
		errs = append(errs, field.Required(at.Child("path"), ""))
	} else {
		errs = append(errs, rejectBacksteps(h.Path, at.Child("path"))...)
	}
	if types := []corev1.HostPathType{
		corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory, corev1.HostPathFileOrCreate,
		corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev,
	}; h.Type != nil && !slices.Contains(types, *h.Type) {
		errs = append(errs, notSupported(at.Child("type"), *h.Type, types))
	}
	return errs
}

func validateNFS(n *corev1.NFSVolumeSource, at *field.Path) field.ErrorList {
	errs := requireValue(n.Server, at.Child("server"), "")
	if !path.IsAbs(n.Path) {
		errs = append(errs, field.Invalid(at.Child("path"), n.Path, "must be an absolute path"))
	}
	return errs
}

// validateDriverName checks the name of a storage or device driver: a DNS name of at most 63 characters, in upper or
// lower case.
func validateDriverName(name string, path *field.Path) field.ErrorList {
	const longest = 63
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > longest {
		errs = append(errs, field.TooLong(path, name, longest))
	}
	return append(errs, invalidErrors(path, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

// defaultRBD sets defaults for a volume type without a driver. The API still returns what its driver assumed.
func defaultRBD(pool, user, keyring *string) {
	setEmpty(pool, "rbd")
	setEmpty(user, "admin")
	setEmpty(keyring, "/etc/ceph/keyring")
}

func defaultScaleIO(mode, fs *string) {
	setEmpty(mode, "ThinProvisioned")
	setEmpty(fs, "xfs")
}

func defaultAzureDisk(d *corev1.AzureDiskVolumeSource) {
	setDefault(&d.CachingMode, corev1.AzureDataDiskCachingReadWrite)
	setDefault(&d.Kind, corev1.AzureSharedBlobDisk)
	setDefault(&d.FSType, "ext4")
	setDefault(&d.ReadOnly, false)
}
