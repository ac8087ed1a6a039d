// Package directory is what the controllers and the kubelet have to agree on about volumes that are a directory of a
// node: who provisions them, where they lie, and by which path a kubelet is asked to remove one.
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
	// Provisioner is the name that a StorageClass has these volumes by.
	Provisioner = "clusterctl.local/directory"
	// Root is where they lie on their node. Nothing else is there.
	Root = "/var/lib/clusterctl/volumes"
	// Finalizer keeps a PersistentVolume until its kubelet has said that the directory is gone.
	Finalizer = Provisioner
	// NodeAnnotation of a PersistentVolume is the name of the node whose kubelet has the directory.
	NodeAnnotation = "clusterctl.local/node"
	// MachineAnnotation of a PersistentVolume is the identity of the machine that the node was when the volume was
	// provisioned: another machine may have the node's name later, and has none of the data.
	MachineAnnotation = "clusterctl.local/machine"
	// MadeAnnotation of a PersistentVolume says that a pod has had it: the directory is there from then on, and is not
	// made again.
	MadeAnnotation = "clusterctl.local/made"
	// Resource is the kubelet's path of them: DELETE /localVolumes/NAME, and PUT /localVolumes/NAME?bytes=SIZE to have
	// one grow.
	Resource = "localVolumes"
	// Size is the query of PUT.
	Size = "bytes"
	// Made and Machine are queries of DELETE: what the volume says by MadeAnnotation and MachineAnnotation.
	Made, Machine = "made", "machine"
	// Missing is the cause that a kubelet gives when it does not have a directory that may lie elsewhere.
	Missing metav1.CauseType = "DirectoryMissing"
)

// Path is where the volume of a name lies on its node.
func Path(name string) string { return path.Join(Root, name) }

// CheckName refuses what is no name of a volume, and so could lead out of Root.
func CheckName(name string) error {
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		return fmt.Errorf("invalid volume name %q: %s", name, strings.Join(wrong, "; "))
	}
	return nil
}

// Provisioned reports whether a volume was made by this provisioner.
func Provisioned(v *corev1.PersistentVolume) bool {
	return v.Annotations[storage.AnnDynamicallyProvisioned] == Provisioner
}
