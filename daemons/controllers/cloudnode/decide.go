package cloudnode

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/config/inventory"
)

// uninitialized is the taint with which kubelets with --cloud-provider=external register. It stays until their Nodes
// have the cloud's data.
const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// decision holds what to do with a Node.
type decision struct {
	needsWrite bool // the fields below have to be written
	// providerID is empty and addresses are nil if they stay unchanged. labels are those to add. taints are the
	// remaining taints.
	providerID  string
	addresses   []corev1.NodeAddress
	labels      map[string]string
	taints      []corev1.Taint
	initialized bool // remove the taint uninitialized

	isMachineGone bool // the machine is gone: delete the Node
	// warning is why a Node differs from the inventory and is not changed. reason is the reason of the event.
	reason, warning string
}

// decide returns what to do with a Node according to the inventory. It only deletes Nodes whose provider ID came from
// the inventory, and only while they are not ready. Other Nodes were created by hand, or by machines that joined with a
// token.
func decide(node *corev1.Node, list inventory.Inventory) decision {
	ours := strings.HasPrefix(node.Spec.ProviderID, inventory.Scheme)
	m, ok := list[node.Name]
	switch {
	case node.DeletionTimestamp != nil, !ok && !ours:
		return decision{}
	case !ok:
		return decision{isMachineGone: !isReady(node)}
	case node.Spec.ProviderID != "" && !ours:
		return decision{
			reason: "ForeignProviderID",
			warning: fmt.Sprintf("Provider ID %s is of another cloud: the inventory's %s is not set",
				node.Spec.ProviderID, m.ProviderID),
		}
	case ours && m.ProviderID != "" && m.ProviderID != node.Spec.ProviderID:
		// Another machine has this name now. A Node's provider ID cannot be changed, so the machine needs a new Node.
		if !isReady(node) {
			return decision{isMachineGone: true}
		}
		return decision{reason: "MachineReplaced", warning: fmt.Sprintf("Machine %s has been replaced by %s, and a "+
			"Node keeps its provider ID: drain and delete the Node, and the kubelet registers a new one",
			node.Spec.ProviderID, m.ProviderID)}
	}
	return initialize(node, m)
}

// initialize returns the changes that bring the inventory's data to a Node.
func initialize(node *corev1.Node, m inventory.Machine) (d decision) {
	if node.Spec.ProviderID == "" {
		d.providerID = m.ProviderID
	}
	if want := mergeAddresses(node.Status.Addresses, m); !slices.Equal(want, node.Status.Addresses) {
		d.addresses = want
	}
	for key, value := range map[string]string{
		corev1.LabelTopologyRegion: m.Region, corev1.LabelTopologyZone: m.Zone,
		corev1.LabelFailureDomainBetaRegion: m.Region, corev1.LabelFailureDomainBetaZone: m.Zone,
	} {
		if value != "" && node.Labels[key] != value {
			if d.labels == nil {
				d.labels = map[string]string{}
			}
			d.labels[key] = value
		}
	}
	for _, t := range node.Spec.Taints {
		if t.Key != uninitialized {
			d.taints = append(d.taints, t)
		}
	}
	d.initialized = len(d.taints) < len(node.Spec.Taints) && m.ProviderID != ""
	d.needsWrite = d.providerID != "" || d.addresses != nil || d.labels != nil || d.initialized
	return d
}

// mergeAddresses combines the kubelet's addresses with the inventory. The kubelet reports the internal addresses and
// the host name, and does not change external addresses. These come from the inventory. It returns nil until the
// kubelet has reported addresses.
func mergeAddresses(existing []corev1.NodeAddress, m inventory.Machine) (list []corev1.NodeAddress) {
	if len(existing) == 0 {
		return nil
	}
	keep := func(which ...corev1.NodeAddressType) {
		for _, a := range existing {
			if slices.Contains(which, a.Type) {
				list = append(list, a)
			}
		}
	}
	keep(corev1.NodeInternalIP)
	for _, a := range m.External {
		list = append(list, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: a})
	}
	keep(corev1.NodeExternalDNS)
	keep(corev1.NodeHostName, corev1.NodeInternalDNS)
	return list
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
