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
	links    *podLinks
	replicas *Replicas
}

// NewNode returns the authorizer for kubelets.
func NewNode(objects api.Objects) *Node {
	return &Node{objects: objects, rules: nodeRules(), links: &podLinks{pods: map[podLink]podKey{}},
		replicas: NewReplicas(objects)}
}

// NodeName returns the node whose kubelet the user is. It returns false for other users.
func NodeName(u api.User) (string, bool) {
	name, ok := strings.CutPrefix(u.Name, api.NodeUserPrefix)
	return name, ok && name != "" && u.InGroup(api.GroupNodes)
}

// Authorize decides only for the daemons of machines. It returns Allow or NoOpinion, never Deny.
func (n *Node) Authorize(_ context.Context, u api.User, r api.Request) (api.Decision, string, error) {
	d, reason, _ := n.TryAuthorize(u, r)
	return d, reason, nil
}

// TryAuthorize is Authorize. It never waits, because it reads only from memory.
func (n *Node) TryAuthorize(u api.User, r api.Request) (api.Decision, string, bool) {
	node, ok := NodeName(u)
	if !ok {
		return n.replicas.TryAuthorize(u, r)
	}
	if r.Resource {
		if reason, special := n.decideSpecial(node, &r); special {
			if reason != "" {
				return api.NoOpinion, reason, false
			}
			return api.Allow, "", false
		}
	}
	for i := range n.rules {
		if grantsRequest(&n.rules[i], &r) {
			return api.Allow, "", false
		}
	}
	return api.NoOpinion, "", false
}

// decideSpecial decides requests for resources of which a node may see only its own objects. An empty reason means that
// the request is allowed. If special is false, the common rules decide.
func (n *Node) decideSpecial(node string, r *api.Request) (reason string, special bool) {
	switch r.GroupResource() {
	case schema.GroupResource{Resource: "secrets"}, schema.GroupResource{Resource: "configmaps"}:
		return n.allowRead(node, r), true
	case schema.GroupResource{Resource: "persistentvolumeclaims"}:
		if r.Subresource == "status" {
			return n.allowStatus(node, r), true
		}
		return n.allowGet(node, r), true
	case schema.GroupResource{Resource: "persistentvolumes"},
		schema.GroupResource{Group: "storage.k8s.io", Resource: "volumeattachments"},
		schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}:
		return n.allowGet(node, r), true
	case schema.GroupResource{Resource: "serviceaccounts"}:
		return n.allowAccount(node, r), true
	case schema.GroupResource{Resource: "nodes"}:
		return n.allowOwnNode(node, r)
	case schema.GroupResource{Resource: "pods"}:
		return n.allowOwnPods(node, r)
	case schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}:
		return allowOwnLease(node, r), true
	case schema.GroupResource{Group: "storage.k8s.io", Resource: "csinodes"}:
		return allowOwnCSINode(node, r), true
	case schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceslices"}:
		return n.allowOwnSlices(node, r), true
	case schema.GroupResource{Group: certificatesv1.GroupName, Resource: "podcertificaterequests"}:
		return n.allowOwnRequests(node, r), true
	}
	return "", false
}

// allowOwnNode allows reading the node's own Node. The common rules decide writes, together with admission, which sees
// their content.
func (n *Node) allowOwnNode(node string, r *api.Request) (string, bool) {
	if r.Subresource != "" || !contains([]string{"get", "list", "watch"}, r.Verb) {
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

// allowOwnPods allows reading the pods on the node: single ones, or all that are on it.
func (n *Node) allowOwnPods(node string, r *api.Request) (string, bool) {
	if r.Subresource != "" {
		return "", false
	}
	switch {
	case r.Verb == "get", (r.Verb == "list" || r.Verb == "watch") && r.Name != "" &&
		!requiresField(r, "spec.nodeName", node):
		pod, ok := n.podOnNode(r.Namespace, r.Name)
		return noRelationReason(node, ok && pod.Spec.NodeName == node), true
	case r.Verb == "list", r.Verb == "watch":
		if requiresField(r, "spec.nodeName", node) {
			return "", true
		}
		return "can only list/watch pods with spec.nodeName field selector", true
	}
	return "", false
}

func (n *Node) podOnNode(namespace, name string) (*corev1.Pod, bool) {
	obj, ok := n.objects.Get(schema.GroupResource{Resource: "pods"}, namespace, name)
	if !ok {
		return nil, false
	}
	return obj.(*corev1.Pod), true
}

// nodeRules returns the common rules for all kubelets.
func nodeRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		newRule("authentication.k8s.io", "tokenreviews", "create"),
		newRule("authorization.k8s.io", "subjectaccessreviews localsubjectaccessreviews", "create"),
		newRule("", "services", "get list watch"),
		// not delete: recreating its Node would let a kubelet remove its taints
		newRule("", "nodes", "create update patch"),
		newRule("", "nodes/status", "update patch"),
		newRule("", "events", "create update patch"),
		newRule("events.k8s.io", "events", "create update patch"),
		newRule("", "pods", "create delete"),
		newRule("", "pods/status", "update patch"),
		newRule("", "pods/eviction", "create"),
		newRule("", "endpoints", "get"),
		newRule("certificates.k8s.io", "certificatesigningrequests", "create get list watch"),
		newRule("storage.k8s.io", "csidrivers", "get list watch"),
		newRule("node.k8s.io", "runtimeclasses", "get list watch"),
		newRule("certificates.k8s.io", "clustertrustbundles", "get list watch"),
	}
}

// newRule returns a rule for a group. resources and verbs are lists of words.
func newRule(group, resources, verbs string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{group},
		Resources: strings.Fields(resources),
		Verbs:     strings.Fields(verbs),
	}
}
