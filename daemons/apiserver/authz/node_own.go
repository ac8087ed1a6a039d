package authz

import (
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
)

// allowOwnLease allows a kubelet the lease with its node's name. Admission checks the name of a new lease.
func allowOwnLease(node string, r *api.Request) string {
	switch {
	case !contains([]string{"get", "create", "update", "patch", "delete"}, r.Verb):
		return "can only get, create, update, patch, or delete a node lease"
	case r.Namespace != corev1.NamespaceNodeLease:
		return fmt.Sprintf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	case r.Verb != "create" && r.Name != node:
		return "can only access node lease with the same name as the requesting node"
	}
	return ""
}

// allowOwnCSINode allows a kubelet the CSINode with its node's name. Admission checks the name of a new CSINode.
func allowOwnCSINode(node string, r *api.Request) string {
	switch {
	case !contains([]string{"get", "create", "update", "patch", "delete"}, r.Verb):
		return "can only get, create, update, patch, or delete a CSINode"
	case r.Subresource != "":
		return "cannot authorize CSINode subresources"
	case r.Verb != "create" && r.Name != node:
		return "can only access CSINode with the same name as the requesting node"
	}
	return ""
}

// allowOwnSlices allows a kubelet the ResourceSlices that name its node, which its drivers publish. Admission checks
// the node of a new slice.
func (n *Node) allowOwnSlices(node string, r *api.Request) string {
	switch {
	case r.Subresource != "":
		return "cannot authorize ResourceSlice subresources"
	case r.Verb == "create":
		return ""
	case contains([]string{"get", "update", "patch", "delete"}, r.Verb):
		obj, ok := n.objects.Get(r.GroupResource(), "", r.Name)
		if ok {
			slice, isType := obj.(*resourcev1.ResourceSlice)
			ok = isType && slice.Spec.NodeName != nil && *slice.Spec.NodeName == node
		}
		return noRelationReason(node, ok)
	case contains([]string{"watch", "list", "deletecollection"}, r.Verb):
		if !requiresField(r, resourcev1.ResourceSliceSelectorNodeName, node) {
			return "can only list/watch/deletecollection resourceslices with nodeName field selector"
		}
		return ""
	}
	return "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, " +
		"delete, deletecollection"
}

// allowOwnRequests allows a kubelet to request certificates for the pods on it, and to read these requests. Admission
// checks the content of a new request.
func (n *Node) allowOwnRequests(node string, r *api.Request) string {
	switch {
	case r.Subresource != "":
		return "cannot authorize PodCertificateRequest subresources"
	case r.Verb == "create":
		return ""
	case r.Verb == "get":
		obj, ok := n.objects.Get(r.GroupResource(), r.Namespace, r.Name)
		if ok {
			request, isType := obj.(*certificatesv1.PodCertificateRequest)
			ok = isType && string(request.Spec.NodeName) == node
		}
		return noRelationReason(node, ok)
	case r.Verb == "list" || r.Verb == "watch":
		if !requiresField(r, "spec.nodeName", node) {
			return "can only list/watch podcertificaterequests with spec.nodeName field selector"
		}
		return ""
	}
	return "only the following verbs are allowed for a PodCertificateRequest: create, get, list, watch"
}

func noRelationReason(node string, related bool) string {
	if related {
		return ""
	}
	return fmt.Sprintf("no relationship found between node '%s' and this object", node)
}

// requiresField reports whether a request's field selector requires a field to have the value.
func requiresField(r *api.Request, name, value string) bool {
	selector, err := fields.ParseSelector(r.FieldSelector)
	if err != nil || strings.TrimSpace(r.FieldSelector) == "" {
		return false
	}
	v, ok := selector.RequiresExactMatch(name)
	return ok && v == value
}

// isNeededToMount reports whether a Secret is needed to mount a volume of a pod on the node.
func (n *Node) isNeededToMount(node, namespace, name string) bool {
	const volumes = "persistentvolumes"
	for _, obj := range n.objects.List(schema.GroupResource{Resource: volumes}, "") {
		if volume := persistentVolumeOf(obj); volume != nil && needsMountSecret(volume, namespace, name) &&
			n.hasReferringPod(node, volumes, "", volume.Name) {
			return true
		}
	}
	return false
}
