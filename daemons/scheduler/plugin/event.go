package plugin

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"

	"clusterctl/daemons/scheduler/cluster"
)

// EventKind is a set of kinds of changes in the cluster.
type EventKind uint8

// Kinds of events.
const (
	NodeChanged EventKind = 1 << iota // a node was added, or changed in a relevant way
	// DomainsChanged: a node changed its domains, does not count any more or was removed, or a namespace's labels
	// changed.
	DomainsChanged
	PodGone                  // a pod ended, shrank, is being deleted, or lost its nomination
	PodPlaced                // a pod got a node, or its labels changed
	StorageChanged           // a change of claims, volumes, classes, or what drivers can attach
	DevicesChanged           // a change of ResourceClaims, device classes, or published devices
	Everything     EventKind = 1<<iota - 1
)

// ClusterEvent is an event with the objects that it is about.
type ClusterEvent struct {
	EventKind
	Node       *cluster.Node       // nil means any node
	NodeBefore *cluster.NodeObject // the node before its labels or taints changed
	// IsNamespaceChange reports whether the event is a change of a namespace's labels.
	IsNamespaceChange bool
	Pod               *cluster.Pod // nil means any pod
	PodBefore         *cluster.Pod // the pod before its labels changed
	StillOnNode       bool         // the pod is still on its node: it is being deleted, or uses less
	Storage           any          // the object that was added, changed or deleted; nil means any
	Device            any          // the device class, claim or slice that changed; nil means any
	Action            string       // upstream's name of the action; empty means an update
	Claim             string       // ResourceClaim as namespace/name; empty means any
	IsFreed           bool         // the ResourceClaim has no devices any more
	Extended          []string     // extended resources that the device class provides or provided
}

// Actions on objects.
const (
	ActionAdd    = "Add"
	ActionDelete = "Delete"
)

// Name returns the event's name in metrics: the kind of the object and the action.
func (h ClusterEvent) Name() string {
	action := cmp.Or(h.Action, "Update")
	switch h.EventKind {
	case NodeChanged, DomainsChanged:
		if h.IsNamespaceChange {
			return "NamespaceUpdate"
		}
		return "Node" + action
	case PodGone:
		switch {
		case !h.StillOnNode:
			return "AssignedPodDelete"
		case h.Pod != nil && h.Pod.DeletionTimestamp == nil:
			return "AssignedPodUpdatePodScaleDown"
		}
		return "AssignedPodUpdate"
	case PodPlaced:
		if h.PodBefore != nil {
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

// deviceKind returns the kind of an object for metrics. Rules that taint devices count as slices.
func deviceKind(obj any) string {
	switch obj.(type) {
	case *resourcev1.DeviceClass:
		return "resource.k8s.io/DeviceClass"
	case *resourcev1.ResourceSlice, *resourcev1.DeviceTaintRule:
		return "resource.k8s.io/ResourceSlice"
	}
	return "resource.k8s.io/ResourceClaim"
}
