// Package provisioner creates and removes the volumes of clusterctl.local/directory, which are directories of nodes. It
// creates the objects, and asks kubelets to remove and resize directories. The kubelet creates a directory when it
// mounts it and enforces its size (daemons/kubelet/volume/projects.go). The binder binds the volumes, and the scheduler
// selects the node.
package provisioner

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/directory"
	"clusterctl/daemons/api/storage"
)

// needsVolume reports whether a claim waits for this provisioner to create a volume.
func needsVolume(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) bool {
	return claim.Spec.VolumeName == "" && claim.DeletionTimestamp == nil && class != nil &&
		class.Provisioner == directory.Provisioner &&
		claim.Annotations[storage.AnnStorageProvisioner] == directory.Provisioner
}

// errOtherNodeNeeded means that the selected node cannot have the volume, while another node might.
var errOtherNodeNeeded = errors.New("another node is needed")

// NewVolume returns the volume for a claim on its selected node, or the reason why there is none. node is nil if it
// does not exist.
func NewVolume(
	claim *corev1.PersistentVolumeClaim,
	class *storagev1.StorageClass,
	node *corev1.Node,
) (*corev1.PersistentVolume, error) {
	if err := checkSupported(claim, class); err != nil {
		return nil, err
	}
	chosen := claim.Annotations[storage.AnnSelectedNode]
	if chosen == "" {
		return nil, fmt.Errorf("a directory is on one node, which has not been chosen: the StorageClass needs "+
			"volumeBindingMode %s", storagev1.VolumeBindingWaitForFirstConsumer)
	}
	if node == nil {
		return nil, fmt.Errorf("node %q does not exist: %w", chosen, errOtherNodeNeeded)
	}
	host := node.Labels[corev1.LabelHostname]
	if host == "" {
		return nil, fmt.Errorf("node %q has no label %s: %w", chosen, corev1.LabelHostname, errOtherNodeNeeded)
	}
	if !api.InTopologies(class.AllowedTopologies, node.Labels) {
		return nil, fmt.Errorf("node %q is in none of the StorageClass's allowedTopologies: "+
			"%w", chosen, errOtherNodeNeeded)
	}
	policy, mode := corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeFilesystem
	if class.ReclaimPolicy != nil {
		policy = *class.ReclaimPolicy
	}
	name := "pvc-" + string(claim.UID)
	annotations := map[string]string{
		storage.AnnDynamicallyProvisioned: directory.Provisioner,
		directory.NodeAnnotation:          node.Name,
	}
	if id := node.Status.NodeInfo.MachineID; id != "" {
		annotations[directory.MachineAnnotation] = id
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{directory.Finalizer}, Annotations: annotations},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage],
			},
			AccessModes: slices.Clone(
				claim.Spec.AccessModes,
			), VolumeMode: &mode, StorageClassName: class.Name, PersistentVolumeReclaimPolicy: policy,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: directory.Path(name)},
			},
			ClaimRef: &corev1.ObjectReference{
				Kind:            "PersistentVolumeClaim",
				APIVersion:      "v1",
				Namespace:       claim.Namespace,
				Name:            claim.Name,
				UID:             claim.UID,
				ResourceVersion: claim.ResourceVersion,
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{
				Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{
						{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{host}},
					}}}},
			},
		},
	}, nil
}

// checkSupported returns an error if a claim or its class needs something that a directory does not offer.
func checkSupported(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) error {
	for _, m := range claim.Spec.AccessModes {
		if m != corev1.ReadWriteOnce && m != corev1.ReadWriteOncePod {
			return fmt.Errorf("access mode %s is not supported: a directory is on one node", m)
		}
	}
	switch {
	case claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode != corev1.PersistentVolumeFilesystem:
		return fmt.Errorf("volume mode %s is not supported", *claim.Spec.VolumeMode)
	case claim.Spec.Selector != nil:
		return errors.New("claim Selector is not supported")
	case claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil:
		return errors.New("a data source is not supported")
	case claim.Spec.VolumeAttributesClassName != nil:
		return errors.New("a VolumeAttributesClass is not supported")
	case len(class.Parameters) > 0:
		return errors.New("the StorageClass has parameters, and there are none")
	case len(class.MountOptions) > 0:
		return errors.New("the StorageClass has mountOptions, which a directory has not")
	}
	return nil
}
