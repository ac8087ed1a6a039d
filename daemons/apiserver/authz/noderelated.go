package authz

import "clusterctl/daemons/api"

// read allows a kubelet to read and watch single objects that a pod on the node refers to.
func (n *Node) read(node string, r *api.Request) string {
	switch {
	case !has([]string{"get", "list", "watch"}, r.Verb):
		return "can only read resources of this type"
	case r.Subresource != "":
		return "cannot read subresource"
	case r.Namespace == "":
		return "can only read namespaced object of this type"
	}
	return n.related(node, r)
}

// get allows a kubelet to get an object that a pod on the node refers to, and not to watch it.
func (n *Node) get(node string, r *api.Request) string {
	switch {
	case r.Verb != "get":
		return "can only get individual resources of this type"
	case r.Subresource != "":
		return "cannot get subresource"
	}
	return n.related(node, r)
}

// status allows a kubelet to write the status of an object that a pod on the node refers to. Like upstream, it does not
// allow to get the status.
func (n *Node) status(node string, r *api.Request) string {
	if !has([]string{"update", "patch"}, r.Verb) {
		return "can only get/update/patch this type"
	}
	return n.related(node, r)
}

// account allows a kubelet to read the service accounts of pods on the node, and to create tokens for them. Admission
// checks the pod of a token.
func (n *Node) account(node string, r *api.Request) string {
	switch {
	case r.Verb == "get" && r.Subresource == "":
		return n.read(node, r)
	case r.Verb != "create" || r.Name == "":
		return "can only create tokens for individual service accounts"
	case r.Subresource != "token":
		return "can only create token subresource of serviceaccount"
	}
	return n.related(node, r)
}

func (n *Node) related(node string, r *api.Request) string {
	if r.Name == "" {
		return "No Object name found"
	}
	return noRelation(node, n.linked(node, r.GroupVersionResource.Resource, r.Namespace, r.Name))
}
