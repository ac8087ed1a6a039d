package oracle

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// nodeVolumeLimits refuses nodes that lack a driver which prevents the scheduling of its pods to such nodes. It also
// refuses nodes to which a driver cannot attach the resulting number of volumes: the pods' volumes and those of
// VolumeAttachments. A volume counts once, even if several pods use it.
func nodeVolumeLimits(c *simulation, pod *corev1.Pod, node *corev1.Node) *filterRefusal {
	csi := c.csiNode(node.Name)
	wants := c.attachableVolumes(pod, csi)
	for _, name := range slices.Sorted(maps.Values(wants)) {
		driver := c.csiDriver(name)
		if driver != nil && isTrue(driver.Spec.PreventPodSchedulingIfMissing) &&
			(csi == nil || !slices.ContainsFunc(csi.Spec.Drivers,
				func(d storagev1.CSINodeDriver) bool { return d.Name == name })) {
			return newResolvable(name + " CSI driver is not installed on the node")
		}
	}
	if csi == nil {
		return nil
	}
	attached := map[string]string{}
	for _, p := range c.podsOn(node) {
		maps.Copy(attached, c.attachableVolumes(p, csi))
	}
	more := maps.Clone(wants)
	for volume := range attached {
		delete(more, volume)
	}
	for _, a := range c.Attachments {
		if a.Spec.NodeName != node.Name || a.Spec.Source.PersistentVolumeName == nil {
			continue
		}
		if pv := c.volume(*a.Spec.Source.PersistentVolumeName); pv != nil && pv.Spec.CSI != nil {
			attached[a.Spec.Attacher+"/"+pv.Spec.CSI.VolumeHandle] = a.Spec.Attacher
		}
	}
	of := func(volumes map[string]string, driver string) (n int) {
		for _, d := range volumes {
			if d == driver {
				n++
			}
		}
		return n
	}
	for _, driver := range csi.Spec.Drivers {
		if driver.Allocatable == nil || driver.Allocatable.Count == nil {
			continue
		}
		if n := of(more, driver.Name); n > 0 && of(attached, driver.Name)+n > int(*driver.Allocatable.Count) {
			return newResolvable("node(s) exceed max volume count")
		}
	}
	return nil
}

// attachableVolumes returns the volumes of a pod that a driver attaches, with the driver of each. A claim without a
// volume counts as a volume that its class's provisioner will create. On nodes with a CSINode, volumes of former
// in-tree plugins belong to the CSI drivers that have replaced these.
func (c *simulation) attachableVolumes(pod *corev1.Pod, csi *storagev1.CSINode) map[string]string {
	result := map[string]string{}
	add := func(driver, handle string) {
		if driver != "" {
			result[driver+"/"+handle] = driver
		}
	}
	if csi != nil {
		for _, v := range pod.Spec.Volumes {
			add(translateInTree(v.AWSElasticBlockStore, v.GCEPersistentDisk, v.AzureDisk, nil))
			if v.Cinder != nil {
				add("cinder.csi.openstack.org", v.Cinder.VolumeID)
			}
		}
	}
	for _, claim := range c.podClaims(pod) {
		pv, class := c.volume(claim.Spec.VolumeName), c.class(claimClass(claim))
		switch {
		case pv != nil && pv.Spec.CSI != nil:
			add(pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle)
		case pv != nil && csi != nil:
			add(translateInTree(pv.Spec.AWSElasticBlockStore, pv.Spec.GCEPersistentDisk, pv.Spec.AzureDisk, pv.Labels))
		case pv == nil && class != nil:
			driver, taken := map[string]string{
				"kubernetes.io/aws-ebs": "ebs.csi.aws.com", "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
				"kubernetes.io/azure-disk": "disk.csi.azure.com", "kubernetes.io/cinder": "cinder.csi.openstack.org",
			}[class.Provisioner]
			if !taken {
				driver = class.Provisioner
			}
			if !taken || csi != nil {
				add(driver, "claim/"+claim.Namespace+"/"+claim.Name)
			}
		}
	}
	return result
}

// translateInTree returns the CSI driver that has replaced a volume's in-tree plugin, and the driver's handle of the
// volume.
func translateInTree(
	aws *corev1.AWSElasticBlockStoreVolumeSource,
	gce *corev1.GCEPersistentDiskVolumeSource,
	azure *corev1.AzureDiskVolumeSource,
	labels map[string]string,
) (driver, handle string) {
	switch {
	case aws != nil:
		parts := strings.Split(aws.VolumeID, "/") // aws://zone/vol-1
		return "ebs.csi.aws.com", parts[len(parts)-1]
	case gce != nil:
		place := "zones/UNSPECIFIED"
		if zone, has := labels[corev1.LabelTopologyZone]; has {
			place = "zones/" + zone
		} else if zone, has := labels[corev1.LabelFailureDomainBetaZone]; has {
			place = "zones/" + zone
		}
		return "pd.csi.storage.gke.io", "projects/UNSPECIFIED/" + place + "/disks/" + gce.PDName
	case azure != nil:
		return "disk.csi.azure.com", azure.DataDiskURI
	}
	return "", ""
}

// sameDisk reports whether two volumes are the same disk, which two pods on one node cannot both use. If both only read
// the disk, they can use it, except with EBS.
func sameDisk(a, b corev1.Volume) bool {
	switch {
	case a.GCEPersistentDisk != nil && b.GCEPersistentDisk != nil:
		return a.GCEPersistentDisk.PDName == b.GCEPersistentDisk.PDName &&
			!(a.GCEPersistentDisk.ReadOnly && b.GCEPersistentDisk.ReadOnly)
	case a.AWSElasticBlockStore != nil && b.AWSElasticBlockStore != nil:
		return a.AWSElasticBlockStore.VolumeID == b.AWSElasticBlockStore.VolumeID
	case a.ISCSI != nil && b.ISCSI != nil:
		return a.ISCSI.IQN == b.ISCSI.IQN && !(a.ISCSI.ReadOnly && b.ISCSI.ReadOnly)
	case a.RBD != nil && b.RBD != nil:
		shared := slices.ContainsFunc(a.RBD.CephMonitors,
			func(m string) bool { return slices.Contains(b.RBD.CephMonitors, m) })
		return shared && a.RBD.RBDPool == b.RBD.RBDPool && a.RBD.RBDImage == b.RBD.RBDImage &&
			!(a.RBD.ReadOnly && b.RBD.ReadOnly)
	}
	return false
}

func isTrue(b *bool) bool { return b != nil && *b }
