package oracle

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// storage draws classes, volumes, claims and what the nodes' drivers can attach. No two volumes and no two claims have
// the same size, so that the smallest is unique.
func (d draws) storage(w *World) {
	now, later := storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer
	w.Classes = []*storagev1.StorageClass{
		{ObjectMeta: metav1.ObjectMeta{Name: "now"}, Provisioner: driver, VolumeBindingMode: &now},
		{ObjectMeta: metav1.ObjectMeta{Name: "later"}, Provisioner: driver, VolumeBindingMode: &later},
		{ObjectMeta: metav1.ObjectMeta{Name: "static"}, Provisioner: noProvisioner, VolumeBindingMode: &later},
		{
			ObjectMeta:        metav1.ObjectMeta{Name: "former"},
			Provisioner:       "kubernetes.io/aws-ebs",
			VolumeBindingMode: &later,
		},
	}
	d.drivers(w)
	if d.oneIn(2, "allowed topologies") {
		w.Classes[1].AllowedTopologies = []corev1.TopologySelectorTerm{
			{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
				{Key: corev1.LabelTopologyZone, Values: zones[:1+d.upTo(1, "zones")]}}},
		}
	}
	for i := range d.upTo(5, "volumes") {
		w.Volumes = append(w.Volumes, d.pv(w, i))
	}
	for i := range d.upTo(6, "claims") {
		w.Claims = append(w.Claims, d.pvc(w, fmt.Sprintf("claim%d", i), i))
	}
	for i := range 1 + d.upTo(2, "new claims") { // unbound, without a selected node
		claim := d.pvc(&World{Nodes: w.Nodes}, fmt.Sprintf("new%d", i), 20+i)
		claim.Annotations, claim.Spec.VolumeName, claim.DeletionTimestamp = nil, "", nil
		class := pickOne(d, "class of new", "later", "later", "later", "static", "former")
		claim.Spec.StorageClassName, claim.Status.Phase = &class, corev1.ClaimPending
		w.Claims = append(w.Claims, claim)
	}
	for i := range d.count(1, "scratch claims") {
		pod, yes := fmt.Sprintf("p%d", i), true
		claim := d.pvc(w, pod+"-scratch", 10+i)
		claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod,
			UID: types.UID(pickOne(d, "owned by", "uid-", "uid-", "uid-", "other-") + pod), Controller: &yes}}
		w.Claims = append(w.Claims, claim)
	}
	for _, node := range w.Nodes {
		d.csiNode(w, node.Name)
	}
}

// drivers draws CSI drivers and their capacities.
func (d draws) drivers(w *World) {
	yes := true
	for _, name := range []string{driver, ebsDriver} {
		if d.oneIn(8, "no driver") {
			continue
		}
		one := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if !d.oneIn(6, "does not tell its capacity") {
			one.Spec.StorageCapacity = &yes
		}
		if d.oneIn(6, "has to be there") {
			one.Spec.PreventPodSchedulingIfMissing = &yes
		}
		w.CSIDrivers = append(w.CSIDrivers, one)
	}
	add := func(where *metav1.LabelSelector) {
		i := len(w.Capacities)
		c := &storagev1.CSIStorageCapacity{
			ObjectMeta:       metav1.ObjectMeta{Namespace: "storage", Name: fmt.Sprintf("capacity%d", i)},
			StorageClassName: pickOne(d, "of class", "later", "later", "later", "former"),
			NodeTopology:     where,
		}
		if !d.oneIn(8, "no capacity") {
			size := resource.MustParse(fmt.Sprintf("%dMi", 1024*(1+d.upTo(8, "size"))+i))
			c.Capacity = &size
		}
		if d.oneIn(4, "largest volume") {
			size := resource.MustParse(pickOne(d, "how large", "700Mi", "1500Mi", "4Gi"))
			c.MaximumVolumeSize = &size
		}
		w.Capacities = append(w.Capacities, c)
	}
	for _, node := range w.Nodes {
		if !d.oneIn(4, "nothing there") {
			add(&metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: node.Name}})
		}
	}
	for range d.count(2, "for many") {
		add(
			pickOne(
				d,
				"where",
				&metav1.LabelSelector{
					MatchLabels: map[string]string{corev1.LabelTopologyZone: pickOne(d, "zone", zones...)},
				},
				nil,
				&metav1.LabelSelector{},
			),
		)
	}
}

// csiNode draws the drivers of a node, and volumes that are attached to it.
func (d draws) csiNode(w *World, name string) {
	if d.oneIn(2, "attaches") {
		n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, of := range []string{driver, ebsDriver} {
			if d.oneIn(4, "lacks driver") {
				continue
			}
			one := storagev1.CSINodeDriver{Name: of, NodeID: name}
			if d.oneIn(2, "limited") {
				count := int32(d.upTo(2, "how many"))
				one.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
			}
			n.Spec.Drivers = append(n.Spec.Drivers, one)
		}
		w.CSINodes = append(w.CSINodes, n)
	}
	for _, pv := range w.Volumes {
		if d.oneIn(16, "attached") {
			w.Attachments = append(
				w.Attachments,
				&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: pv.Name + "-" + name},
					Spec: storagev1.VolumeAttachmentSpec{Attacher: driver, NodeName: name,
						Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name}}},
			)
		}
	}
}

// disks draws volumes of former in-tree plugins.
func (d draws) disks(p *corev1.Pod) {
	add := func(source corev1.VolumeSource) {
		p.Spec.Volumes = append(p.Spec.Volumes,
			corev1.Volume{Name: fmt.Sprintf("disk%d", len(p.Spec.Volumes)), VolumeSource: source})
	}
	reads := func() bool { return d.oneIn(2, "reads only") }
	which := func() string { return pickOne(d, "disk", "one", "two") }
	if d.oneIn(12, "gce") {
		add(
			corev1.VolumeSource{
				GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: which(), ReadOnly: reads()},
			},
		)
	}
	if d.oneIn(10, "ebs") {
		id := pickOne(d, "volume", "vol-1", "vol-2", "aws://za/vol-1")
		add(
			corev1.VolumeSource{
				AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: id, ReadOnly: reads()},
			},
		)
	}
	if d.oneIn(16, "iscsi") {
		add(
			corev1.VolumeSource{
				ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: "10.0.0.9", IQN: which(), ReadOnly: reads()},
			},
		)
	}
	if d.oneIn(16, "rbd") {
		monitors := pickOne(d, "monitors", []string{"m1", "m2"}, []string{"m2"}, []string{"m3"})
		add(
			corev1.VolumeSource{
				RBD: &corev1.RBDVolumeSource{
					CephMonitors: monitors,
					RBDPool:      "p",
					RBDImage:     which(),
					ReadOnly:     reads(),
				},
			},
		)
	}
}

func (d draws) mode() []corev1.PersistentVolumeAccessMode {
	return []corev1.PersistentVolumeAccessMode{
		pickOne(d, "access", corev1.ReadWriteOnce, corev1.ReadWriteOncePod, corev1.ReadWriteMany),
	}
}

func (d draws) pv(w *World, i int) *corev1.PersistentVolume {
	name := fmt.Sprintf("pv%d", i)
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{}},
	}
	v.Spec.StorageClassName = pickOne(d, "class", "static", "later", "now")
	v.Spec.Capacity = corev1.ResourceList{
		corev1.ResourceStorage: resource.MustParse(fmt.Sprintf("%dMi", 1024*(1+d.upTo(4, "size"))+i)),
	}
	v.Spec.AccessModes = append(d.mode(), corev1.ReadWriteOnce)
	v.Status.Phase = pickOne(d, "phase", corev1.VolumeAvailable, corev1.VolumeAvailable, corev1.VolumeAvailable,
		corev1.VolumePending)
	switch d.upTo(5, "source") {
	case 0:
		v.Spec.Local = &corev1.LocalVolumeSource{Path: "/data"}
	case 1:
		v.Spec.AWSElasticBlockStore = &corev1.AWSElasticBlockStoreVolumeSource{
			VolumeID: pickOne(d, "volume", "vol-1", "aws://za/vol-2"),
		}
	default:
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}
	}
	if d.oneIn(8, "block") {
		block := corev1.PersistentVolumeBlock
		v.Spec.VolumeMode = &block
	}
	if d.oneIn(12, "attributes class") {
		gold := "gold"
		v.Spec.VolumeAttributesClassName = &gold
	}
	if d.oneIn(3, "reachable from") {
		r := pickOne(
			d,
			"whence",
			corev1.NodeSelectorRequirement{
				Key:      corev1.LabelTopologyZone,
				Operator: corev1.NodeSelectorOpIn,
				Values:   zones[:1],
			},
			corev1.NodeSelectorRequirement{
				Key:      corev1.LabelHostname,
				Operator: corev1.NodeSelectorOpIn,
				Values:   []string{pickOne(d, "host", w.Nodes...).Name},
			},
		)
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{r}}}}}
	}
	if d.oneIn(4, "labelled zone") {
		key := pickOne(d, "label", corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone)
		v.Labels[key] = pickOne(d, "zones", "za", "zb", "za__zc", "za__")
	}
	if d.oneIn(3, "speed") {
		v.Labels["speed"] = "fast"
	}
	return v
}

func (d draws) pvc(w *World, name string, i int) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace(), Name: name,
		UID: types.UID("uid-" + name), Annotations: map[string]string{}}}
	class := pickOne(d, "class", "static", "later", "later", "later", "former", "now")
	c.Spec.StorageClassName = &class
	c.Spec.Resources.Requests = corev1.ResourceList{
		corev1.ResourceStorage: resource.MustParse(fmt.Sprintf("%dMi", 512*(1+d.upTo(4, "size"))+i)),
	}
	c.Spec.AccessModes = d.mode()
	c.Status.Phase = corev1.ClaimPending
	if d.oneIn(10, "block") {
		block := corev1.PersistentVolumeBlock
		c.Spec.VolumeMode = &block
	}
	if d.oneIn(16, "attributes class") {
		gold := "gold"
		c.Spec.VolumeAttributesClassName = &gold
	}
	if d.oneIn(6, "selector") {
		c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"speed": "fast"}}
	}
	if d.oneIn(24, "being deleted") {
		at := metav1.NewTime(firstStart)
		c.DeletionTimestamp = &at
	}
	bind := func(volume string) {
		c.Spec.VolumeName, c.Status.Phase = volume, corev1.ClaimBound
		c.Annotations[bindCompleted] = "yes"
	}
	switch d.upTo(9, "state") {
	case 0, 1, 2, 3, 4:
		for _, v := range w.Volumes {
			if v.Spec.ClaimRef == nil {
				v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: c.Namespace, Name: name, UID: c.UID}
				v.Status.Phase = corev1.VolumeBound
				bind(v.Name)
				break
			}
		}
	case 5:
		bind("gone")
		if d.oneIn(3, "lost") {
			c.Status.Phase = corev1.ClaimLost
		}
	case 6:
		if class != "now" {
			c.Annotations[selectedNode] = pickOne(d, "selected", w.Nodes...).Name
		}
	case 7:
		for _, v := range w.Volumes {
			if v.Spec.ClaimRef == nil {
				v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: c.Namespace, Name: name}
				break
			}
		}
	}
	return c
}
