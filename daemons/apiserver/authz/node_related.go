package authz

import "clusterctl/daemons/api"

// allowRead allows a kubelet to read and watch single objects that a pod on the node refers to.
func (n *Node) allowRead(node string, r *api.Request) string {
	switch {
	case !contains([]string{"get", "list", "watch"}, r.Verb):
		return "can only read resources of this type"
	case r.Subresource != "":
		return "cannot read subresource"
	case r.Namespace == "":
		return "can only read namespaced object of this type"
	}
	return n.allowRelated(node, r)
}

// allowGet allows a kubelet to get an object that a pod on the node refers to, and not to watch it.
func (n *Node) allowGet(node string, r *api.Request) string {
	switch {
	case r.Verb != "get":
		return "can only get individual resources of this type"
	case r.Subresource != "":
		return "cannot get subresource"
	}
	return n.allowRelated(node, r)
}

// allowStatus allows a kubelet to write the status of an object that a pod on the node refers to. Like upstream, it
// does not allow to get the status.
func (n *Node) allowStatus(node string, r *api.Request) string {
	if !contains([]string{"update", "patch"}, r.Verb) {
		return "can only get/update/patch this type"
	}
	return n.allowRelated(node, r)
}

// allowAccount allows a kubelet to read the service accounts of pods on the node, and to create tokens for them.
// Admission checks the pod of a token.
func (n *Node) allowAccount(node string, r *api.Request) string {
	switch {
	case r.Verb == "get" && r.Subresource == "":
		return n.allowRead(node, r)
	case r.Verb != "create" || r.Name == "":
		return "can only create tokens for individual service accounts"
	case r.Subresource != "token":
		return "can only create token subresource of serviceaccount"
	}
	return n.allowRelated(node, r)
}

func (n *Node) allowRelated(node string, r *api.Request) string {
	if r.Name == "" {
		return "No Object name found"
	}
	return noRelationReason(node, n.hasReferringPod(node, r.GroupVersionResource.Resource, r.Namespace, r.Name))
}
