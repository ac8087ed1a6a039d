package authz

import (
	"context"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
)

// Node lets kubelets read only what their own pods need, so that a stolen node credential exposes only data that the
// node already had. Replicas does the same for the other daemons of machines.
type Node struct {
	objects  api.Objects
	rules    []rbacv1.PolicyRule
	known    *links
	replicas *Replicas
}

// NewNode returns the authorizer for kubelets.
func NewNode(objects api.Objects) *Node {
	return &Node{objects: objects, rules: nodeRules(), known: &links{at: map[link]podKey{}},
		replicas: NewReplicas(objects)}
}

// NodeName returns the node whose kubelet the user is. It returns false for other users.
func NodeName(u api.User) (string, bool) {
	name, ok := strings.CutPrefix(u.Name, api.NodeUserPrefix)
	return name, ok && name != "" && u.InGroup(api.GroupNodes)
}

// Authorize decides only for the daemons of machines. It returns Allow or NoOpinion, never Deny.
func (n *Node) Authorize(_ context.Context, u api.User, r api.Request) (api.Decision, string, error) {
	d, reason, _ := n.AuthorizePromptly(u, r)
	return d, reason, nil
}

// AuthorizePromptly is Authorize. It never waits, because it reads only from memory.
func (n *Node) AuthorizePromptly(u api.User, r api.Request) (api.Decision, string, bool) {
	node, ok := NodeName(u)
	if !ok {
		return n.replicas.AuthorizePromptly(u, r)
	}
	if r.Resource {
		if reason, special := n.special(node, &r); special {
			if reason != "" {
				return api.NoOpinion, reason, false
			}
			return api.Allow, "", false
		}
	}
	for i := range n.rules {
		if allows(&n.rules[i], &r) {
			return api.Allow, "", false
		}
	}
	return api.NoOpinion, "", false
}

// special decides requests for resources of which a node may see only its own objects. An empty reason means that the
// request is allowed. If special is false, the common rules decide.
func (n *Node) special(node string, r *api.Request) (reason string, special bool) {
	switch r.GroupResource() {
	case schema.GroupResource{Resource: "secrets"}, schema.GroupResource{Resource: "configmaps"}:
		return n.read(node, r), true
	case schema.GroupResource{Resource: "persistentvolumeclaims"}:
		if r.Subresource == "status" {
			return n.status(node, r), true
		}
		return n.get(node, r), true
	case schema.GroupResource{Resource: "persistentvolumes"},
		schema.GroupResource{Group: "storage.k8s.io", Resource: "volumeattachments"},
		schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}:
		return n.get(node, r), true
	case schema.GroupResource{Resource: "serviceaccounts"}:
		return n.account(node, r), true
	case schema.GroupResource{Resource: "nodes"}:
		return n.ownNode(node, r)
	case schema.GroupResource{Resource: "pods"}:
		return n.ownPods(node, r)
	case schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}:
		return ownLease(node, r), true
	case schema.GroupResource{Group: "storage.k8s.io", Resource: "csinodes"}:
		return ownCSINode(node, r), true
	case schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceslices"}:
		return n.ownSlices(node, r), true
	case schema.GroupResource{Group: certificatesv1.GroupName, Resource: "podcertificaterequests"}:
		return n.ownRequests(node, r), true
	}
	return "", false
}

// ownNode allows reading the node's own Node. The common rules decide writes, together with admission, which sees their
// content.
func (n *Node) ownNode(node string, r *api.Request) (string, bool) {
	if r.Subresource != "" || !has([]string{"get", "list", "watch"}, r.Verb) {
		return "", false
	}
	switch r.Name {
	case node:
		return "", true
	case "":
		return fmt.Sprintf("node '%s' cannot read all nodes, only its own Node object", node), true
	}
	return fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", node, r.Name), true
}

// ownPods allows reading the pods on the node: single ones, or all that are on it.
func (n *Node) ownPods(node string, r *api.Request) (string, bool) {
	if r.Subresource != "" {
		return "", false
	}
	switch {
	case r.Verb == "get", (r.Verb == "list" || r.Verb == "watch") && r.Name != "" && !selects(r, "spec.nodeName", node):
		pod, ok := n.pod(r.Namespace, r.Name)
		return noRelation(node, ok && pod.Spec.NodeName == node), true
	case r.Verb == "list", r.Verb == "watch":
		if selects(r, "spec.nodeName", node) {
			return "", true
		}
		return "can only list/watch pods with spec.nodeName field selector", true
	}
	return "", false
}

func (n *Node) pod(namespace, name string) (*corev1.Pod, bool) {
	obj, ok := n.objects.Get(schema.GroupResource{Resource: "pods"}, namespace, name)
	if !ok {
		return nil, false
	}
	return obj.(*corev1.Pod), true
}

// nodeRules returns the common rules for all kubelets.
func nodeRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule("authentication.k8s.io", "tokenreviews", "create"),
		rule("authorization.k8s.io", "subjectaccessreviews localsubjectaccessreviews", "create"),
		rule("", "services", "get list watch"),
		// not delete: recreating its Node would let a kubelet remove its taints
		rule("", "nodes", "create update patch"),
		rule("", "nodes/status", "update patch"),
		rule("", "events", "create update patch"),
		rule("events.k8s.io", "events", "create update patch"),
		rule("", "pods", "create delete"),
		rule("", "pods/status", "update patch"),
		rule("", "pods/eviction", "create"),
		rule("", "endpoints", "get"),
		rule("certificates.k8s.io", "certificatesigningrequests", "create get list watch"),
		rule("storage.k8s.io", "csidrivers", "get list watch"),
		rule("node.k8s.io", "runtimeclasses", "get list watch"),
		rule("certificates.k8s.io", "clustertrustbundles", "get list watch"),
	}
}

// rule returns a rule for a group. resources and verbs are lists of words.
func rule(group, resources, verbs string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{group},
		Resources: strings.Fields(resources),
		Verbs:     strings.Fields(verbs),
	}
}
