package authz

import (
	"testing"

	"clusterctl/daemons/api"
)

// Only clusterctl may write the inventory of machines, because Nodes are deleted by it.
// Proves S22.
func TestOnlyClusterctlWritesTheInventory(t *testing.T) {
	chain, err := New(nil, testObjects())
	if err != nil {
		t.Fatal(err)
	}
	users := []api.User{
		scheduler,
		cloudNode,
		editorUser,
		viewerUser,
		authenticatedUser,
		anonymousUser,
		{Name: "system:node:n1", Groups: []string{"system:nodes", "system:authenticated"}},
		{
			Name: "system:serviceaccount:kube-system:service-controller",
		},
		{Name: "system:serviceaccount:kube-system:node-controller"},
	}
	for _, name := range []string{"kube-proxy", "kube-network", "kube-dns", "kube-ingress", "kube-address",
		"metrics-server"} {
		users = append(users, api.User{Name: "system:" + name})
	}
	for _, user := range users {
		for _, verb := range []string{"create", "update", "patch", "delete"} {
			if d, reason, err := chain.Authorize(t.Context(), user, parseRequest(verb+" :configmaps "+
				"kube-system/machine-inventory")); d == api.Allow ||
				err != nil {
				t.Errorf("%s may %s it: %s (%v)", user.Name, verb, reason, err)
			}
		}
	}
	if d, _, err := chain.Authorize(t.Context(), adminUser, parseRequest("patch :configmaps "+
		"kube-system/machine-inventory")); d != api.Allow ||
		err != nil {
		t.Errorf("clusterctl may not: %v", err)
	}
}
