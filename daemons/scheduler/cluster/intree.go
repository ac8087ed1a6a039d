package cluster

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// CSI drivers that have replaced in-tree plugins.
const (
	ebs      = "ebs.csi.aws.com"
	gcePD    = "pd.csi.storage.gke.io"
	azure    = "disk.csi.azure.com"
	cinder   = "cinder.csi.openstack.org"
	portworx = "pxd.portworx.com"
)

// successors maps provisioners of in-tree plugins to their CSI drivers.
var successors = map[string]string{
	"kubernetes.io/aws-ebs": ebs, "kubernetes.io/gce-pd": gcePD, "kubernetes.io/azure-disk": azure,
	"kubernetes.io/cinder": cinder, "kubernetes.io/portworx-volume": portworx,
}

// inTreeVolume is an in-tree volume by its CSI driver and handle. The zero value means none.
type inTreeVolume struct{ Driver, handle string }

func (f inTreeVolume) key() string { return f.Driver + "/" + f.handle }

const unspecified = "UNSPECIFIED"

// inTreeOfVolume returns the in-tree volume of a PersistentVolume.
func inTreeOfVolume(pv *corev1.PersistentVolume) inTreeVolume {
	s := &pv.Spec.PersistentVolumeSource
	zones := pv.Labels[corev1.LabelTopologyZone]
	if zones == "" {
		zones = pv.Labels[corev1.LabelFailureDomainBetaZone]
	}
	if s.Cinder != nil {
		return inTreeVolume{cinder, s.Cinder.VolumeID}
	}
	return inTreeOfDisk(s.AWSElasticBlockStore, s.GCEPersistentDisk, s.AzureDisk, s.PortworxVolume, zones)
}

// inTreeOfPodVolume returns the in-tree volume of a pod's volume.
func inTreeOfPodVolume(v *corev1.Volume) inTreeVolume {
	if v.Cinder != nil {
		return inTreeVolume{cinder, v.Cinder.VolumeID}
	}
	return inTreeOfDisk(v.AWSElasticBlockStore, v.GCEPersistentDisk, v.AzureDisk, v.PortworxVolume, "")
}

func inTreeOfDisk(
	aws *corev1.AWSElasticBlockStoreVolumeSource,
	gce *corev1.GCEPersistentDiskVolumeSource,
	disk *corev1.AzureDiskVolumeSource,
	px *corev1.PortworxVolumeSource,
	zones string,
) inTreeVolume {
	switch {
	case aws != nil:
		id := aws.VolumeID
		if strings.HasPrefix(id, "aws://") { // the form is aws://zone/vol-…
			id = id[strings.LastIndex(id, "/")+1:]
		}
		if !strings.HasPrefix(id, "vol-") {
			return inTreeVolume{}
		}
		return inTreeVolume{ebs, id}
	case gce != nil:
		return inTreeVolume{gcePD, "projects/" + unspecified + "/" + gceZone(zones) + "/disks/" + gce.PDName}
	case disk != nil:
		return inTreeVolume{azure, disk.DataDiskURI}
	case px != nil:
		return inTreeVolume{portworx, px.VolumeID}
	}
	return inTreeVolume{}
}

// gceZone returns the zone of a disk, or the region of a disk in several zones.
func gceZone(zones string) string {
	first, _, several := strings.Cut(zones, "__")
	switch cut := strings.LastIndex(first, "-"); {
	case first == "":
		return "zones/" + unspecified
	case several && cut > 0:
		return "regions/" + first[:cut]
	}
	return "zones/" + first
}

// Disk is an in-tree volume that several pods of a node cannot always share.
type Disk struct {
	gce   *corev1.GCEPersistentDiskVolumeSource
	aws   *corev1.AWSElasticBlockStoreVolumeSource
	iscsi *corev1.ISCSIVolumeSource
	rbd   *corev1.RBDVolumeSource
}

// readInTreeVolumes reads the volumes of a pod that are not claims.
func (s *Shape) readInTreeVolumes(pod *corev1.Pod) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if d := (Disk{v.GCEPersistentDisk, v.AWSElasticBlockStore, v.ISCSI, v.RBD}); d != (Disk{}) {
			s.Disks = append(s.Disks, d)
		}
		if f := inTreeOfPodVolume(v); f.Driver != "" {
			s.inTreeVolumes = append(s.inTreeVolumes, f)
		}
	}
}

// HasAttachable reports whether the shape's pods have volumes that a driver may attach.
func (s *Shape) HasAttachable() bool { return len(s.Volumes)+len(s.inTreeVolumes) > 0 }

// Conflicts reports whether two pods on one node cannot both have their disks: it is the same disk, and at least one
// pod writes to it. EBS volumes always conflict.
func (d *Disk) Conflicts(o *Disk) bool {
	switch {
	case d.gce != nil && o.gce != nil:
		return d.gce.PDName == o.gce.PDName && !(d.gce.ReadOnly && o.gce.ReadOnly)
	case d.aws != nil && o.aws != nil:
		return d.aws.VolumeID == o.aws.VolumeID
	case d.iscsi != nil && o.iscsi != nil:
		return d.iscsi.IQN == o.iscsi.IQN && !(d.iscsi.ReadOnly && o.iscsi.ReadOnly)
	case d.rbd != nil && o.rbd != nil:
		return d.rbd.RBDPool == o.rbd.RBDPool && d.rbd.RBDImage == o.rbd.RBDImage &&
			!(d.rbd.ReadOnly && o.rbd.ReadOnly) &&
			intersects(d.rbd.CephMonitors, o.rbd.CephMonitors)
	}
	return false
}

func intersects(a, b []string) bool {
	for _, one := range a {
		for _, other := range b {
			if one == other {
				return true
			}
		}
	}
	return false
}
