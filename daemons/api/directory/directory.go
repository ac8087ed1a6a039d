// Package directory defines what the controllers and the kubelet share about volumes that are directories of a node:
// their provisioner, their location, and the kubelet's API for them.
package directory

import (
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"clusterctl/daemons/api/storage"
)

const (
	// Provisioner is the provisioner's name in StorageClasses.
	Provisioner = "clusterctl.local/directory"
	// Root is the directory of these volumes on their node. It contains nothing else.
	Root = "/var/lib/clusterctl/volumes"
	// Finalizer holds a PersistentVolume until its kubelet has confirmed that the directory is gone.
	Finalizer = Provisioner
	// NodeAnnotation of a PersistentVolume is the name of the node with the directory.
	NodeAnnotation = "clusterctl.local/node"
	// MachineAnnotation of a PersistentVolume is the identity of the node's machine at provisioning. Another machine
	// may have the node's name later, and has none of the data.
	MachineAnnotation = "clusterctl.local/machine"
	// UsedAnnotation of a PersistentVolume records that a pod has used it. The directory exists from then on, and is
	// not created again.
	UsedAnnotation = "clusterctl.local/made"
	// Resource is the kubelet's path for volumes: DELETE /localVolumes/NAME removes one, and PUT
	// /localVolumes/NAME?bytes=SIZE enlarges one.
	Resource = "localVolumes"
	// SizeParameter is the query parameter of PUT, in bytes.
	SizeParameter = "bytes"
	// UsedParameter and MachineParameter are query parameters of DELETE, with the values of UsedAnnotation and
	// MachineAnnotation.
	UsedParameter, MachineParameter = "made", "machine"
	// MissingCause is the status cause that a kubelet returns if it does not have a directory that may be elsewhere.
	MissingCause metav1.CauseType = "DirectoryMissing"
)

// Path returns the path of a volume on its node.
func Path(name string) string { return path.Join(Root, name) }

// CheckName returns an error if name is not a valid volume name, because it could lead out of Root.
func CheckName(name string) error {
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		return fmt.Errorf("invalid volume name %q: %s", name, strings.Join(wrong, "; "))
	}
	return nil
}

// IsProvisioned reports whether this provisioner created a volume.
func IsProvisioned(v *corev1.PersistentVolume) bool {
	return v.Annotations[storage.AnnDynamicallyProvisioned] == Provisioner
}
