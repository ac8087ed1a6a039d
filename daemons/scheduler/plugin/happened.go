package plugin

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"

	"clusterctl/daemons/scheduler/cluster"
)

// Event is a kind of change of the cluster, or several.
type Event uint8

// Events by what they may help.
const (
	NodeChanged Event = 1 << iota // a node came, or changed in what matters
	// a node is in other domains, counts no more or is gone, or a namespace has other labels
	DomainsChanged
	PodGone              // a pod ended, shrank, is on its way out, or lost the promise of a node
	PodPlaced            // a pod came to a node, or its labels changed
	StorageChanged       // claims, volumes, classes, or what drivers can attach
	DevicesChanged       // claims of devices, their classes, or what drivers tell of devices
	Everything     Event = 1<<iota - 1
)

// Happened is an event and what it was about.
type Happened struct {
	Event
	Node   *cluster.Node       // nil: any
	Before *cluster.NodeObject // the node before its labels or taints changed
	// Namespace says that it is a namespace whose labels have changed.
	Namespace bool
	Pod       *cluster.Pod // nil: any
	Was       *cluster.Pod // the same pod before its labels changed
	Leaving   bool         // the pod is on its node still: it is on its way out, or takes less room
	Storage   any          // the object that came, changed or is gone; nil: any
	Device    any          // likewise
	Action    string       // what became of the object, by upstream's name; empty: it changed
	Claim     string       // of devices, as namespace/name; empty: any
	Freed     bool         // the claim has no devices any more
	Extended  []string     // resources for which a class of devices stands, or has stood
}

// What may become of an object.
const (
	Came = "Add"
	Gone = "Delete"
)

// Name is what metrics call an event: the kind of the object and what became of it.
func (h Happened) Name() string {
	action := cmp.Or(h.Action, "Update")
	switch h.Event {
	case NodeChanged, DomainsChanged:
		if h.Namespace {
			return "NamespaceUpdate"
		}
		return "Node" + action
	case PodGone:
		switch {
		case !h.Leaving:
			return "AssignedPodDelete"
		case h.Pod != nil && h.Pod.DeletionTimestamp == nil:
			return "AssignedPodUpdatePodScaleDown"
		}
		return "AssignedPodUpdate"
	case PodPlaced:
		if h.Was != nil {
			return "AssignedPodUpdatePodLabel"
		}
		return "AssignedPodAdd"
	case StorageChanged:
		return storageKind(h.Storage) + action
	}
	return deviceKind(h.Device) + action
}

func storageKind(obj any) string {
	switch obj.(type) {
	case *corev1.PersistentVolume:
		return "PersistentVolume"
	case *storagev1.StorageClass:
		return "storage.k8s.io/StorageClass"
	case *storagev1.CSINode:
		return "storage.k8s.io/CSINode"
	case *storagev1.CSIDriver:
		return "storage.k8s.io/CSIDriver"
	case *storagev1.CSIStorageCapacity:
		return "storage.k8s.io/CSIStorageCapacity"
	case *storagev1.VolumeAttachment:
		return "storage.k8s.io/VolumeAttachment"
	}
	return "PersistentVolumeClaim"
}

// deviceKind has the rules that taint devices be part of the slices that these are in.
func deviceKind(obj any) string {
	switch obj.(type) {
	case *resourcev1.DeviceClass:
		return "resource.k8s.io/DeviceClass"
	case *resourcev1.ResourceSlice, *resourcev1.DeviceTaintRule:
		return "resource.k8s.io/ResourceSlice"
	}
	return "resource.k8s.io/ResourceClaim"
}
