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

// ownLease allows a kubelet the lease with its node's name. Admission checks the name of a new lease.
func ownLease(node string, r *api.Request) string {
	switch {
	case !has([]string{"get", "create", "update", "patch", "delete"}, r.Verb):
		return "can only get, create, update, patch, or delete a node lease"
	case r.Namespace != corev1.NamespaceNodeLease:
		return fmt.Sprintf("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
	case r.Verb != "create" && r.Name != node:
		return "can only access node lease with the same name as the requesting node"
	}
	return ""
}

// ownCSINode allows a kubelet the CSINode with its node's name. Admission checks the name of a new CSINode.
func ownCSINode(node string, r *api.Request) string {
	switch {
	case !has([]string{"get", "create", "update", "patch", "delete"}, r.Verb):
		return "can only get, create, update, patch, or delete a CSINode"
	case r.Subresource != "":
		return "cannot authorize CSINode subresources"
	case r.Verb != "create" && r.Name != node:
		return "can only access CSINode with the same name as the requesting node"
	}
	return ""
}

// ownSlices allows a kubelet the ResourceSlices that name its node, which its drivers publish. Admission checks the
// node of a new slice.
func (n *Node) ownSlices(node string, r *api.Request) string {
	switch {
	case r.Subresource != "":
		return "cannot authorize ResourceSlice subresources"
	case r.Verb == "create":
		return ""
	case has([]string{"get", "update", "patch", "delete"}, r.Verb):
		obj, ok := n.objects.Get(r.GroupResource(), "", r.Name)
		if ok {
			slice, is := obj.(*resourcev1.ResourceSlice)
			ok = is && slice.Spec.NodeName != nil && *slice.Spec.NodeName == node
		}
		return noRelation(node, ok)
	case has([]string{"watch", "list", "deletecollection"}, r.Verb):
		if !selects(r, resourcev1.ResourceSliceSelectorNodeName, node) {
			return "can only list/watch/deletecollection resourceslices with nodeName field selector"
		}
		return ""
	}
	return "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, " +
		"delete, deletecollection"
}

// ownRequests allows a kubelet to request certificates for the pods on it, and to read these requests. Admission checks
// the content of a new request.
func (n *Node) ownRequests(node string, r *api.Request) string {
	switch {
	case r.Subresource != "":
		return "cannot authorize PodCertificateRequest subresources"
	case r.Verb == "create":
		return ""
	case r.Verb == "get":
		obj, ok := n.objects.Get(r.GroupResource(), r.Namespace, r.Name)
		if ok {
			request, is := obj.(*certificatesv1.PodCertificateRequest)
			ok = is && string(request.Spec.NodeName) == node
		}
		return noRelation(node, ok)
	case r.Verb == "list" || r.Verb == "watch":
		if !selects(r, "spec.nodeName", node) {
			return "can only list/watch podcertificaterequests with spec.nodeName field selector"
		}
		return ""
	}
	return "only the following verbs are allowed for a PodCertificateRequest: create, get, list, watch"
}

func noRelation(node string, related bool) string {
	if related {
		return ""
	}
	return fmt.Sprintf("no relationship found between node '%s' and this object", node)
}

// selects reports whether a request's field selector requires a field to have the value.
func selects(r *api.Request, name, value string) bool {
	selector, err := fields.ParseSelector(r.FieldSelector)
	if err != nil || strings.TrimSpace(r.FieldSelector) == "" {
		return false
	}
	v, ok := selector.RequiresExactMatch(name)
	return ok && v == value
}

// throughVolume reports whether a Secret is needed to mount a volume of a pod on the node.
func (n *Node) throughVolume(node, namespace, name string) bool {
	const volumes = "persistentvolumes"
	for _, obj := range n.objects.List(schema.GroupResource{Resource: volumes}, "") {
		if volume := persistent(obj); volume != nil && mountsWith(volume, namespace, name) &&
			n.linked(node, volumes, "", volume.Name) {
			return true
		}
	}
	return false
}
