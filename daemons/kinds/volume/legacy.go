package volume

import (
	"net"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/validate"
)

// Names of iSCSI initiators and targets, by their type.
var (
	qualifiedName = validate.Pattern(`^iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`)
	extendedName  = validate.Pattern(`^eui\.[[:alnum:]]{16}$`)
	networkName   = validate.Pattern(`^naa\.[[:alnum:]]{32}$`)
)

// LegacyOfPersistent returns the source of a persistent volume as that of a pod's volume, as far as ValidateLegacy
// reads it.
func LegacyOfPersistent(s *corev1.PersistentVolumeSource) *corev1.VolumeSource {
	v := &corev1.VolumeSource{
		GCEPersistentDisk: s.GCEPersistentDisk, AWSElasticBlockStore: s.AWSElasticBlockStore, Flocker: s.Flocker,
		Quobyte: s.Quobyte, FC: s.FC, VsphereVolume: s.VsphereVolume, AzureDisk: s.AzureDisk,
		PhotonPersistentDisk: s.PhotonPersistentDisk, PortworxVolume: s.PortworxVolume,
	}
	secret := func(s *corev1.SecretReference) *corev1.LocalObjectReference {
		if s == nil {
			return nil
		}
		return &corev1.LocalObjectReference{Name: s.Name}
	}
	if i := s.ISCSI; i != nil {
		v.ISCSI = &corev1.ISCSIVolumeSource{TargetPortal: i.TargetPortal, IQN: i.IQN, Lun: i.Lun,
			InitiatorName: i.InitiatorName, DiscoveryCHAPAuth: i.DiscoveryCHAPAuth,
			SessionCHAPAuth: i.SessionCHAPAuth, SecretRef: secret(i.SecretRef)}
	}
	if g := s.Glusterfs; g != nil {
		v.Glusterfs = &corev1.GlusterfsVolumeSource{EndpointsName: g.EndpointsName, Path: g.Path}
	}
	if r := s.RBD; r != nil {
		v.RBD = &corev1.RBDVolumeSource{CephMonitors: r.CephMonitors, RBDImage: r.RBDImage}
	}
	if c := s.Cinder; c != nil {
		v.Cinder = &corev1.CinderVolumeSource{VolumeID: c.VolumeID, SecretRef: secret(c.SecretRef)}
	}
	if c := s.CephFS; c != nil {
		v.CephFS = &corev1.CephFSVolumeSource{Monitors: c.Monitors}
	}
	if a := s.AzureFile; a != nil {
		v.AzureFile = &corev1.AzureFileVolumeSource{SecretName: a.SecretName, ShareName: a.ShareName}
	}
	if f := s.FlexVolume; f != nil {
		v.FlexVolume = &corev1.FlexVolumeSource{Driver: f.Driver, Options: f.Options}
	}
	if i := s.ScaleIO; i != nil {
		v.ScaleIO = &corev1.ScaleIOVolumeSource{Gateway: i.Gateway, System: i.System, VolumeName: i.VolumeName}
	}
	if o := s.StorageOS; o != nil {
		v.StorageOS = &corev1.StorageOSVolumeSource{VolumeName: o.VolumeName, VolumeNamespace: o.VolumeNamespace}
	}
	return v
}

// ValidateLegacy validates the sources of volumes whose drivers were once part of Kubernetes.
func ValidateLegacy(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	required := func(where *field.Path, fields ...requiredField) {
		for _, f := range fields {
			errs = append(errs, validate.Required(f.value, where.Child(f.name), "")...)
		}
	}
	if d := v.GCEPersistentDisk; d != nil {
		where := at.Child("gcePersistentDisk")
		required(where, requiredField{"pdName", d.PDName})
		errs = append(errs, validatePartition(d.Partition, where)...)
	}
	if d := v.AWSElasticBlockStore; d != nil {
		where := at.Child("awsElasticBlockStore")
		required(where, requiredField{"volumeID", d.VolumeID})
		errs = append(errs, validatePartition(d.Partition, where)...)
	}
	if g := v.Glusterfs; g != nil {
		required(at.Child("glusterfs"), requiredField{"endpoints", g.EndpointsName}, requiredField{"path", g.Path})
	}
	if r := v.RBD; r != nil {
		errs = append(errs, validateMonitors(r.CephMonitors, at.Child("rbd"))...)
		required(at.Child("rbd"), requiredField{"image", r.RBDImage})
	}
	if c := v.CephFS; c != nil {
		errs = append(errs, validateMonitors(c.Monitors, at.Child("cephfs"))...)
	}
	if c := v.Cinder; c != nil {
		required(at.Child("cinder"), requiredField{"volumeID", c.VolumeID})
		if c.SecretRef != nil {
			required(at.Child("cinder", "secretRef"), requiredField{"name", c.SecretRef.Name})
		}
	}
	if a := v.AzureFile; a != nil {
		required(at.Child("azureFile"), requiredField{"secretName", a.SecretName},
			requiredField{"shareName", a.ShareName})
	}
	if s := v.VsphereVolume; s != nil {
		required(at.Child("vsphereVolume"), requiredField{"volumePath", s.VolumePath})
	}
	if p := v.PhotonPersistentDisk; p != nil {
		required(at.Child("photonPersistentDisk"), requiredField{"pdID", p.PdID})
	}
	if p := v.PortworxVolume; p != nil {
		required(at.Child("portworxVolume"), requiredField{"volumeID", p.VolumeID})
	}
	if s := v.ScaleIO; s != nil {
		required(at.Child("scaleIO"), requiredField{"gateway", s.Gateway}, requiredField{"system", s.System},
			requiredField{"volumeName", s.VolumeName})
	}
	for _, validateSource := range []func(*corev1.VolumeSource, *field.Path) field.ErrorList{
		validateISCSI, validateFlocker, validateQuobyte, validateFibreChannel, validateFlex, validateAzureDisk,
		validateStorageOS,
	} {
		errs = append(errs, validateSource(v, at)...)
	}
	return errs
}

// requiredField is a field that must not be empty.
type requiredField struct{ name, value string }

func validatePartition(number int32, at *field.Path) field.ErrorList {
	const largest = 255
	if number < 0 || number > largest {
		return field.ErrorList{field.Invalid(at.Child("partition"), number, validation.InclusiveRangeError(1, largest))}
	}
	return nil
}

func validateLun(lun int32, at *field.Path) field.ErrorList {
	const largest = 255
	if lun < 0 || lun > largest {
		return field.ErrorList{field.Invalid(at.Child("lun"), lun, validation.InclusiveRangeError(0, largest))}
	}
	return nil
}

func validateMonitors(monitors []string, at *field.Path) field.ErrorList {
	if len(monitors) == 0 {
		return field.ErrorList{field.Required(at.Child("monitors"), "")}
	}
	return nil
}

func validateISCSI(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	i, at := v.ISCSI, at.Child("iscsi")
	if i == nil {
		return nil
	}
	errs := validate.Required(i.TargetPortal, at.Child("targetPortal"), "")
	if i.IQN == "" {
		errs = append(errs, field.Required(at.Child("iqn"), ""))
	} else {
		errs = append(errs, validateISCSIName(i.IQN, at.Child("iqn"))...)
	}
	errs = append(errs, validateLun(i.Lun, at)...)
	if (i.DiscoveryCHAPAuth || i.SessionCHAPAuth) && i.SecretRef == nil {
		errs = append(errs, field.Required(at.Child("secretRef"), ""))
	}
	if i.InitiatorName != nil {
		errs = append(errs, validateISCSIName(*i.InitiatorName, at.Child("initiatorname"))...)
	}
	return errs
}

func validateISCSIName(name string, at *field.Path) field.ErrorList {
	matches := false
	switch {
	case strings.HasPrefix(name, "iqn"):
		matches = qualifiedName().MatchString(name)
	case strings.HasPrefix(name, "eui"):
		matches = extendedName().MatchString(name)
	case strings.HasPrefix(name, "naa"):
		matches = networkName().MatchString(name)
	default:
		return field.ErrorList{field.Invalid(at, name, "must be valid format starting with iqn, eui, or naa")}
	}
	if !matches {
		return field.ErrorList{field.Invalid(at, name, "must be valid format")}
	}
	return nil
}

func validateFlocker(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	f, at := v.Flocker, at.Child("flocker")
	if f == nil {
		return nil
	}
	var errs field.ErrorList
	if f.DatasetName == "" && f.DatasetUUID == "" {
		errs = append(errs, field.Required(at, "one of datasetName and datasetUUID is required"))
	}
	if f.DatasetName != "" && f.DatasetUUID != "" {
		errs = append(errs, field.Invalid(at, "resource",
			"datasetName and datasetUUID can not be specified simultaneously"))
	}
	if strings.Contains(f.DatasetName, "/") {
		errs = append(errs, field.Invalid(at.Child("datasetName"), f.DatasetName, "must not contain '/'"))
	}
	return errs
}

func validateQuobyte(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	q, at := v.Quobyte, at.Child("quobyte")
	if q == nil {
		return nil
	}
	const (
		maxTenant = 64
		pairs     = "must be a host:port pair or multiple pairs separated by commas"
	)
	var errs field.ErrorList
	if q.Registry == "" {
		errs = append(errs, field.Required(at.Child("registry"), pairs))
	} else if slices.ContainsFunc(strings.Split(q.Registry, ","), func(pair string) bool {
		_, _, err := net.SplitHostPort(pair)
		return err != nil
	}) {
		errs = append(errs, field.Invalid(at.Child("registry"), q.Registry, pairs))
	}
	if len(q.Tenant) > maxTenant {
		errs = append(errs, field.Required(at.Child("tenant"),
			"must be a UUID and may not exceed a length of 64 characters"))
	}
	return append(errs, validate.Required(q.Volume, at.Child("volume"), "")...)
}

func validateFibreChannel(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	f, at := v.FC, at.Child("fc")
	if f == nil {
		return nil
	}
	const either = "must specify either targetWWNs or wwids, but not both"
	var errs field.ErrorList
	switch {
	case len(f.TargetWWNs) == 0 && len(f.WWIDs) == 0:
		errs = append(errs, field.Required(at.Child("targetWWNs"), either))
	case len(f.TargetWWNs) != 0 && len(f.WWIDs) != 0:
		errs = append(errs, field.Invalid(at.Child("targetWWNs"), f.TargetWWNs, either))
	}
	switch {
	case len(f.TargetWWNs) == 0:
	case f.Lun == nil:
		errs = append(errs, field.Required(at.Child("lun"), "lun is required if targetWWNs is specified"))
	default:
		errs = append(errs, validateLun(*f.Lun, at)...)
	}
	return errs
}

func validateFlex(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	f, at := v.FlexVolume, at.Child("flexVolume")
	if f == nil {
		return nil
	}
	errs := validate.Required(f.Driver, at.Child("driver"), "")
	for key := range f.Options {
		namespace, _, _ := strings.Cut(strings.ToLower(key), "/")
		namespace = "." + namespace
		if strings.HasSuffix(namespace, ".kubernetes.io") || strings.HasSuffix(namespace, ".k8s.io") {
			errs = append(errs, field.Invalid(at.Child("options").Key(key), key,
				"kubernetes.io and k8s.io namespaces are reserved"))
		}
	}
	return errs
}

func validateAzureDisk(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	d, at := v.AzureDisk, at.Child("azureDisk")
	if d == nil {
		return nil
	}
	kinds := []corev1.AzureDataDiskKind{corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk,
		corev1.AzureSharedBlobDisk}
	errs := validate.Required(d.DiskName, at.Child("diskName"), "")
	errs = append(errs, validate.Required(d.DataDiskURI, at.Child("diskURI"), "")...)
	if d.CachingMode != nil {
		errs = append(errs, validate.Supported(*d.CachingMode, []corev1.AzureDataDiskCachingMode{
			corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite},
			at.Child("cachingMode"))...)
	}
	if d.Kind == nil {
		return errs
	}
	if !slices.Contains(kinds, *d.Kind) {
		errs = append(errs, validate.NotSupported(at.Child("kind"), *d.Kind, kinds))
	}
	isManaged := *d.Kind == corev1.AzureManagedDisk
	if isManaged && !strings.HasPrefix(d.DataDiskURI, "/subscriptions/") {
		errs = append(errs, validate.NotSupported(at.Child("diskURI"), d.DataDiskURI, []string{"/subscriptions/" +
			"{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"}))
	}
	if !isManaged && !strings.HasPrefix(d.DataDiskURI, "https://") {
		errs = append(errs, validate.NotSupported(at.Child("diskURI"), d.DataDiskURI,
			[]string{"https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"}))
	}
	return errs
}

func validateStorageOS(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	s, at := v.StorageOS, at.Child("storageos")
	if s == nil {
		return nil
	}
	errs := validate.RequiredDNSLabel(s.VolumeName, at.Child("volumeName"))
	if s.VolumeNamespace != "" {
		errs = append(errs, validate.DNSLabel(s.VolumeNamespace, at.Child("volumeNamespace"))...)
	}
	if s.SecretRef != nil {
		errs = append(errs, validate.Required(s.SecretRef.Name, at.Child("secretRef", "name"), "")...)
	}
	return errs
}
