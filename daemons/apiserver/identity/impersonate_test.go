package identity

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/request"
)

// grantedRights lists what a user may do: verb, resource with its group and subresource, and name.
type grantedRights []string

func (r grantedRights) Authorize(_ context.Context, by api.User, q api.Request) (api.Decision, string, error) {
	resource := strings.TrimPrefix(q.Group+"/", "/") + q.GroupVersionResource.Resource
	if q.Subresource != "" {
		resource += "/" + q.Subresource
	}
	if q.Namespace != "" {
		resource = q.Namespace + ":" + resource
	}
	text := strings.TrimSpace(q.Verb + " " + resource + " " + q.Name)
	if len(by.Extra["authentication.kubernetes.io/associated-node-keys"]) > 0 {
		text += " on its node"
	}
	if slices.Contains(r, text) {
		return api.Allow, "", nil
	}
	return api.NoOpinion, "", nil
}

// Each mode of constrained impersonation needs its own right and the right to the action while impersonating.
// Unconstrained impersonation works as before.
//
//style:long a table of requests, with the rights of their users
func TestConstrainedImpersonationNeedsItsRights(t *testing.T) {
	const g = "authentication.k8s.io/"
	agent := api.User{
		Name:  "system:serviceaccount:shop:agent",
		Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"n"}},
	}
	helper := api.User{Name: "helper"}
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Add("Impersonate-"+pairs[i], pairs[i+1])
		}
		return h
	}
	for name, c := range map[string]struct {
		by         api.User
		rights     grantedRights
		as         http.Header
		constraint string
		groups     string
		refusal    string
	}{
		"as ever": {helper, grantedRights{"impersonate users ann"}, header("User", "ann"), "",
			"system:authenticated", ""},
		"a user": {helper,
			grantedRights{"impersonate:user-info " + g + "users ann", "impersonate-on:user-info:list " +
				"pods"}, header("User", "ann"), "impersonate:user-info", "system:authenticated", ""},
		"a user, for something else": {helper, grantedRights{"impersonate:user-info " + g + "users ann", "impersonate-on:user-info:get pods"}, header("User", "ann"), "", "", `cannot impersonate-on:user-info:list resource "pods"`},
		"another user":               {helper, grantedRights{"impersonate:user-info " + g + "users ann", "impersonate-on:user-info:list pods"}, header("User", "bob"), "", "", `users.authentication.k8s.io "bob" is forbidden: User "helper" cannot impersonate:user-info resource "users"`},
		"all of a user": {helper, grantedRights{"impersonate-on:user-info:list " +
			"pods", "impersonate:user-info " + g + "users ann", "impersonate:user-info " + g + "groups dev",
			"impersonate:user-info " + g + "uids 1", "impersonate:user-info " + g + "userextras/acme.io/x " +
				"y"}, header("User", "ann", "Group", "dev", "Uid", "1", "Extra-Acme.io%2fx", "y"),
			"impersonate:user-info", "dev system:authenticated", ""},
		"many groups at once": {helper, grantedRights{"impersonate-on:user-info:list " +
			"pods", "impersonate:user-info " + g + "users ann", "impersonate:user-info " + g + "groups *"},
			header("User", "ann", "Group", "a", "Group", "b", "Group", "c", "Group", "d"), "impersonate:user-info",
			"a b c d system:authenticated", ""},
		"never masters": {helper, grantedRights{"impersonate-on:user-info:list " +
			"pods", "impersonate:user-info " + g + "users ann", "impersonate:user-info " + g + "groups system:masters"},
			header("User", "ann", "Group", "system:masters"), "", "", "impersonating the system:masters group is not " +
				"allowed"},
		"but as ever": {helper, grantedRights{"impersonate users ann", "impersonate groups " +
			"system:masters"}, header("User", "ann", "Group", "system:masters"), "", "system:masters " +
			"system:authenticated", ""},
		"extra without a domain": {helper, grantedRights{"impersonate-on:user-info:list " +
			"pods", "impersonate:user-info " + g + "users ann"}, header("User", "ann", "Extra-Scopes", "y"), "", "",
			"impersonating an invalid key in extra is not allowed"},
		"an account": {helper, grantedRights{"impersonate-on:serviceaccount:list " +
			"pods", "impersonate:serviceaccount shop:" + g + "serviceaccounts web"},
			header("User", "system:serviceaccount:shop:web"), "impersonate:serviceaccount", "system:serviceaccounts " +
				"system:serviceaccounts:shop system:authenticated", ""},
		"an account, as ever": {helper, grantedRights{"impersonate shop:serviceaccounts " +
			"web"}, header("User", "system:serviceaccount:shop:web"), "", "system:serviceaccounts " +
			"system:serviceaccounts:shop system:authenticated", ""},
		"no account as a user": {helper, grantedRights{"impersonate-on:user-info:list " +
			"pods", "impersonate:user-info " + g + "users system:serviceaccount:shop:web"},
			header("User", "system:serviceaccount:shop:web"), "", "", "impersonate-on:serviceaccount:list"},
		"any node": {helper, grantedRights{"impersonate-on:arbitrary-node:list " +
			"pods", "impersonate:arbitrary-node " + g + "nodes m"}, header("User", "system:node:m"),
			"impersonate:arbitrary-node", "system:nodes system:authenticated", ""},
		"its node": {agent, grantedRights{"impersonate-on:associated-node:list pods on its " +
			"node", "impersonate:associated-node " + g + "nodes * on its node"}, header("User", "system:node:n"),
			"impersonate:associated-node", "system:nodes system:authenticated", ""},
		"not another node": {agent, grantedRights{"impersonate-on:associated-node:list pods on its " +
			"node", "impersonate:associated-node " + g + "nodes * on its node"}, header("User", "system:node:m"), "",
			"", "impersonate-on:arbitrary-node:list"},
		"a node, as ever": {helper, grantedRights{"impersonate users " +
			"system:node:m"}, header("User", "system:node:m"), "", "system:authenticated", ""},
		"somebody whom nobody knows": {helper, grantedRights{"impersonate users " +
			"system:anonymous"}, header("User", "system:anonymous"), "", "system:unauthenticated", ""},
		"nobody, but in a group": {helper, nil, header("Group", "dev"), "", "", `requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"dev"}, Extra:map[string][]string(nil)} without impersonating a user name`},
		"somebody of another cluster": {helper, grantedRights{"impersonate users ann", "impersonate groups " +
			"system:unauthenticated"}, header("User", "ann", "Group", "system:unauthenticated"), "",
			"system:unauthenticated", ""},
	} {
		s := New(Config{Authorizers: []api.Authorizer{c.rights}})
		q := &request.Request{HTTP: httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil), User: c.by}
		q.Request = api.Request{
			Verb:                 "list",
			Resource:             true,
			GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"),
		}
		wanted, err := impersonatedUser(c.as)
		var as api.User
		var constraint string
		if err == nil {
			as, constraint, err = s.resolveImpersonation(q, wanted)
		}
		if c.refusal != "" {
			if err == nil || !strings.Contains(err.Error(), c.refusal) {
				t.Errorf("%s: %v, want %s", name, err, c.refusal)
			}
			continue
		}
		if err != nil || constraint != c.constraint || strings.Join(as.Groups, " ") != c.groups ||
			as.Name != wanted.Name {
			t.Errorf("%s: %+v under %q, %v", name, as, constraint, err)
		}
	}
}
