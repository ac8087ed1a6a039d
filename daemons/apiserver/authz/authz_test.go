package authz

import (
	"context"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
)

// Proves S12.
//
//style:long a table of requests by each user
func TestUsersMayDoOnlyWhatTheirRolesAllow(t *testing.T) {
	chain, err := New(nil, testObjects())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		user  api.User
		asks  string
		allow bool
	}{
		{mastersUser, "delete :secrets kube-system/x", true},
		{adminUser, "delete :secrets kube-system/x", true},
		{adminUser, "get /debug/pprof/", true},
		{authenticatedUser, "get :pods shop/web", false},
		{authenticatedUser, "create authorization.k8s.io:selfsubjectaccessreviews", true},
		{authenticatedUser, "get /apis/apps", true},
		{anonymousUser, "get /apis/apps", false},
		{anonymousUser, "get /healthz", true},
		{anonymousUser, "get /metrics", false},
		{viewerUser, "list :pods shop/", true},
		{viewerUser, "get :pods/log shop/web", true},
		{viewerUser, "get :secrets shop/tls", false},
		{viewerUser, "delete :pods shop/web", false},
		{viewerUser, "get :pods/exec shop/web", false},
		{editorUser, "create apps:deployments shop/", true},
		{editorUser, "get :secrets shop/tls", true},
		{editorUser, "create apps:deployments elsewhere/", false},
		{editorUser, "create rbac.authorization.k8s.io:roles shop/", false},
		{scheduler, "create :pods/binding shop/web", true},
		{scheduler, "update coordination.k8s.io:leases kube-system/kube-scheduler", true},
		{scheduler, "update coordination.k8s.io:leases kube-system/kube-controller-manager", false},
		{scheduler, "get :secrets shop/tls", false},
		{scheduler, "get :configmaps kube-system/extension-apiserver-authentication", true},
		{replicaUser("kube-network", "a"), "patch :nodes/status n1", false},
		{replicaUser("kube-network", "a"), "patch :nodes n1", false},
		{replicaUser("kube-network", "a"), "list :pods", false},
		{replicaUser("kube-network", "a"), "delete :pods shop/web", false},
		{replicaUser("kube-network", "a"), "watch networking.k8s.io:networkpolicies", true},
		{replicaUser("kube-network", "a"), "watch discovery.k8s.io:endpointslices kube-system/", true},
		{replicaUser("kube-network", "a"), "list discovery.k8s.io:endpointslices shop/", true},
		{replicaUser("kube-network", "a"), "watch :services", true},
		{replicaUser("kube-network", "a"), "patch :services/status shop/web", false},
		{replicaUser("kube-network", "a"), "update coordination.k8s.io:leases kube-system/load-balancer-7", true},
		{replicaUser("kube-network", "a"), "delete coordination.k8s.io:leases " +
			"kube-system/load-balancer-local-63", true},
		{replicaUser("kube-network", "a"), "update coordination.k8s.io:leases kube-system/kube-scheduler", false},
		{replicaUser("kube-network", "a"), "list coordination.k8s.io:leases kube-system/", false},
		{replicaUser("kube-network", "a"), "watch :configmaps kube-system/load-balancer-pools", true},
		{replicaUser("kube-network", "a"), "get :configmaps kube-system/other", false},
		{replicaUser("kube-network", "a"), "watch :configmaps kube-system/machine-inventory", true},
		{replicaUser("kube-network", "a"), "watch :configmaps kube-system/", false},
		{replicaUser("kube-network", "a"), "watch :configmaps shop/machine-inventory", false},
		{replicaUser("kube-network", "a"), "watch :nodes", true},
		{api.User{Name: "system:kube-address"}, "update coordination.k8s.io:leases kube-system/kube-address", true},
		{api.User{Name: "system:kube-address"}, "update coordination.k8s.io:leases kube-system/kube-scheduler", false},
		{replicaUser("kube-ingress", "a"), "watch :secrets", false},
		{replicaUser("kube-ingress", "a"), "watch gateway.networking.k8s.io:httproutes", true},
		{replicaUser("kube-ingress", "a"), "update gateway.networking.k8s.io:gateways/status shop/web",
			false}, // no such object
		{replicaUser("kube-ingress", "a"), "update gateway.networking.k8s.io:gateways shop/web", false},
		{replicaUser("kube-ingress", "a"), "create :services shop/", false},
		{replicaUser("kube-ingress", "a"), "update networking.k8s.io:ingresses/status shop/web", false},
		{replicaUser("kube-ingress", "a"), "update networking.k8s.io:ingresses shop/web", false},
		{replicaUser("kube-ingress", "a"), "create discovery.k8s.io:endpointslices kube-system/", true},
		{replicaUser("kube-ingress", "a"), "create discovery.k8s.io:endpointslices shop/", false},
		{replicaUser("kube-dns", "a"), "watch discovery.k8s.io:endpointslices", true},
		{replicaUser("kube-dns", "a"), "watch :nodes", true},
		{replicaUser("kube-dns", "a"), "patch :nodes n1", false},
		{api.User{Name: "system:kube-proxy"}, "list discovery.k8s.io:endpointslices", true},
		{api.User{Name: "system:kube-proxy"}, "watch :nodes", true},
		{api.User{Name: "system:serviceaccount:kube-system:endpointslicemirroring-controller"},
			"create discovery.k8s.io:endpointslices shop/", true},
		{api.User{Name: "system:serviceaccount:kube-system:endpointslicemirroring-controller"}, "get :endpoints " +
			"shop/db", true},
		{api.User{Name: "system:serviceaccount:kube-system:networkpolicy-controller"},
			"create discovery.k8s.io:endpointslices kube-system/", true},
		{api.User{Name: "system:serviceaccount:kube-system:networkpolicy-controller"},
			"list networking.k8s.io:networkpolicies", true},
		{api.User{Name: "system:serviceaccount:kube-system:networkpolicy-controller"},
			"update networking.k8s.io:networkpolicies shop/web", false},
		{api.User{Name: "system:serviceaccount:kube-system:service-controller"}, "patch :services/status " +
			"shop/web", true},
		{api.User{Name: "system:serviceaccount:kube-system:service-controller"}, "update :services shop/web", false},
		{api.User{Name: "system:serviceaccount:kube-system:service-controller"}, "watch :configmaps " +
			"kube-system/load-balancer-pools", true},
		{api.User{Name: "system:serviceaccount:kube-system:service-controller"}, "get :configmaps " +
			"kube-system/other", false},
		{cloudNode, "watch :configmaps kube-system/machine-inventory", true},
		{cloudNode, "update :configmaps kube-system/machine-inventory", false},
		{cloudNode, "get :configmaps kube-system/other", false},
		{cloudNode, "list :configmaps kube-system/", false},
		{cloudNode, "delete :nodes n1", true},
		{cloudNode, "patch :nodes n1", true},
		{cloudNode, "update :nodes n1", false},
		{cloudNode, "create :nodes", false},
		{cloudNode, "patch :nodes/status n1", true},
		{cloudNode, "create :events default/", true},
		{cloudNode, "list :pods", false},
		{cloudNode, "delete :pods shop/web", false},
		{cloudNode, "get :secrets kube-system/x", false},
		{api.User{Name: "system:serviceaccount:kube-system:node-controller"}, "get :configmaps " +
			"kube-system/machine-inventory", false},
		{api.User{Name: "system:kube-controller-manager"}, "update :endpoints/finalizers shop/db", true},
		{api.User{Name: "system:serviceaccount:kube-system:deployment-controller"}, "create apps:replicasets " +
			"shop/", true},
		{api.User{Name: "system:serviceaccount:kube-system:deployment-controller"}, "create :pods shop/", false},
	} {
		d, reason, err := chain.Authorize(context.Background(), c.user, parseRequest(c.asks))
		if err != nil || (d == api.Allow) != c.allow {
			t.Errorf("%s: %s: decision %v (%s, %v), want allowed %v", c.user.Name, c.asks, d, reason, err, c.allow)
		}
	}
}

//style:long a table of requests by nodes
func TestANodeSeesOnlyWhatItsPodsNeed(t *testing.T) {
	o := testObjects()
	addReferencedObjects(o)
	n := NewNode(o)
	for _, c := range []struct {
		asks   string
		reason string // empty if the request is allowed
	}{
		{"get :secrets shop/tls", ""},
		{"watch :secrets shop/tls", ""},
		{"get :secrets shop/pull", ""},
		{"get :secrets shop/theirs", "no relationship found between node 'n1' and this object"},
		{"list :secrets shop/", "No Object name found"},
		{"delete :secrets shop/tls", "can only read resources of this type"},
		{"get :configmaps shop/settings", ""},
		{"get :configmaps shop/others", "no relationship found between node 'n1' and this object"},
		{"get :persistentvolumeclaims shop/data", ""},
		{"get :persistentvolumes pv1", ""},
		{"get :persistentvolumes pv2", "no relationship found between node 'n1' and this object"},
		{"watch :persistentvolumeclaims shop/data", "can only get individual resources of this type"},
		{"watch :persistentvolumes pv1", "can only get individual resources of this type"},
		{"patch :persistentvolumeclaims/status shop/data", ""},
		{"get :persistentvolumeclaims/status shop/data", "can only get/update/patch this type"},
		{"get storage.k8s.io:volumeattachments mine", ""},
		{"get storage.k8s.io:volumeattachments theirs", "no relationship found between node 'n1' and this object"},
		{"watch storage.k8s.io:volumeattachments mine", "can only get individual resources of this type"},
		{"patch storage.k8s.io:csinodes n1", ""},
		{"get storage.k8s.io:csinodes n2", "can only access CSINode with the same name as the requesting node"},
		{"watch storage.k8s.io:csinodes n1", "can only get, create, update, patch, or delete a CSINode"},
		{"get :serviceaccounts shop/web", ""},
		{"watch :serviceaccounts shop/web", "can only create tokens for individual service accounts"},
		{"create :serviceaccounts/token shop/web", ""},
		{"create :serviceaccounts/token shop/other", "no relationship found between node 'n1' and this object"},
		{"get :nodes n1", ""},
		{"get :nodes n2", "node 'n1' cannot read 'n2', only its own Node object"},
		{"list :nodes", "node 'n1' cannot read all nodes, only its own Node object"},
		{"watch :nodes n1", ""},
		{"list :pods ?spec.nodeName=n1", ""},
		{"list :pods ?spec.nodeName=n2", "can only list/watch pods with spec.nodeName field selector"},
		{"list :pods", "can only list/watch pods with spec.nodeName field selector"},
		{"get :pods shop/web", ""},
		{"watch :pods shop/web", ""},
		{"watch :pods shop/other", "no relationship found between node 'n1' and this object"},
		{"get :pods shop/other", "no relationship found between node 'n1' and this object"},
		{"update coordination.k8s.io:leases kube-node-lease/n1", ""},
		{"update coordination.k8s.io:leases kube-node-lease/n2", "can only access node lease with the same name as " +
			"the requesting node"},
		{"list coordination.k8s.io:leases kube-node-lease/", "can only get, create, update, patch, or delete a node " +
			"lease"},
		{"update coordination.k8s.io:leases kube-system/n1", `can only access leases in the "kube-node-lease" system namespace`},
		{"create :events shop/", ""},
		{"list :services", ""},
		{"get :secrets vault/stage", ""},
		{"get :secrets shop/publish", ""},
		{"get :secrets vault/attach", "no relationship found between node 'n1' and this object"},
		{"get :secrets vault/foreign", "no relationship found between node 'n1' and this object"},
		{"get :secrets shop/ceph", ""},
		{"get resource.k8s.io:resourceclaims shop/named", ""},
		{"get resource.k8s.io:resourceclaims shop/made", ""},
		{"get resource.k8s.io:resourceclaims shop/others", "no relationship found between node 'n1' and this object"},
		{"list resource.k8s.io:resourceclaims shop/", "can only get individual resources of this type"},
		{"get resource.k8s.io:resourceclaims/status shop/named", "cannot get subresource"},
		{"create resource.k8s.io:resourceslices", ""},
		{"update resource.k8s.io:resourceslices mine", ""},
		{"delete resource.k8s.io:resourceslices theirs", "no relationship found between node 'n1' and this object"},
		{"get resource.k8s.io:resourceslices everybodys", "no relationship found between node 'n1' and this object"},
		{"watch resource.k8s.io:resourceslices ?spec.nodeName=n1", ""},
		{"deletecollection resource.k8s.io:resourceslices ?spec.nodeName=n2", "can only list/watch/deletecollection " +
			"resourceslices with nodeName field selector"},
		{"list resource.k8s.io:resourceslices", "can only list/watch/deletecollection resourceslices with nodeName " +
			"field selector"},
		{"create certificates.k8s.io:podcertificaterequests shop/", ""},
		{"get certificates.k8s.io:podcertificaterequests shop/mine", ""},
		{"get certificates.k8s.io:podcertificaterequests shop/theirs", "no relationship found between node 'n1' and " +
			"this object"},
		{"watch certificates.k8s.io:podcertificaterequests ?spec.nodeName=n1", ""},
		{"list certificates.k8s.io:podcertificaterequests", "can only list/watch podcertificaterequests with " +
			"spec.nodeName field selector"},
		{"update certificates.k8s.io:podcertificaterequests/status shop/mine", "cannot authorize " +
			"PodCertificateRequest subresources"},
	} {
		d, reason, err := n.Authorize(context.Background(), node1, parseRequest(c.asks))
		if err != nil || (d == api.Allow) != (c.reason == "") || reason != c.reason {
			t.Errorf("%s: %v %q %v, want %q", c.asks, d, reason, err, c.reason)
		}
	}
	// The right ends with the pod.
	pod, _ := o.Get(schema.GroupResource{Resource: "pods"}, "shop", "web")
	o.Remove(pod)
	if d, _, _ := n.Authorize(context.Background(), node1, parseRequest("get :secrets shop/tls")); d == api.Allow {
		t.Error("the node still reads a secret of a pod that is gone")
	}
	if d, _, _ := n.Authorize(context.Background(), api.User{Name: "system:node:n1"},
		parseRequest("get :nodes n1")); d == api.Allow {
		t.Error("a node's name without its group is taken for a node")
	}
}

func TestRoleChangesTakeEffect(t *testing.T) {
	o := testObjects()
	rbac := NewRBAC(o)
	allowed := func(u api.User, text string) bool {
		d, _, _ := rbac.Authorize(context.Background(), u, parseRequest(text))
		return d == api.Allow
	}
	if allowed(viewerUser, "list example.com:crontabs shop/") {
		t.Fatal("allowed before the role exists")
	}
	extra := aggregatedPart("crontab-viewer", "view", newRule("example.com", "crontabs", "get list"))
	o.Put(&extra)
	if !allowed(viewerUser, "list example.com:crontabs shop/") || !allowed(editorUser, "list example.com:crontabs "+
		"shop/") {
		t.Error("an aggregated role's new part is not seen, or not in what aggregates it again")
	}
	o.Remove(&extra)
	if allowed(viewerUser, "list example.com:crontabs shop/") {
		t.Error("a removed role still counts")
	}
}

// Proves S12.
func TestUsersCannotGrantRightsTheyLack(t *testing.T) {
	o := testObjects()
	authorizer, err := New([]string{"RBAC"}, o)
	if err != nil {
		t.Fatal(err)
	}
	plugin := NewEscalation(o, authorizer)
	localAdmin := api.User{Name: "boss"}
	o.Put(
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "boss"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
			Subjects:   []rbacv1.Subject{userSubject("boss")},
		},
	)
	for name, c := range map[string]struct {
		user  api.User
		obj   any
		error string
	}{
		"what one has": {localAdmin,
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r"},
				Rules: []rbacv1.PolicyRule{newRule("", "pods", "get")}},
			""},
		"more": {localAdmin, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{newRule("", "nodes", "get")}}, `user "boss" (groups=[]) is attempting to grant RBAC permissions not currently held:` + "\n" + `{APIGroups:[""], Resources:["nodes"], Verbs:["get"]}`},
		"many more": {localAdmin,
			&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r"},
				Rules: []rbacv1.PolicyRule{newRule("", "nodes", "list"), newRule("", "nodes", "get"),
					newRule("apps", "other", "get")}},
			"not currently held:\n" + `{APIGroups:[""], Resources:["nodes"], Verbs:["list" "get"]}` + "\n" + `{APIGroups:["apps"], Resources:["other"], Verbs:["get"]}`},
		"bind own role": {localAdmin,
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"},
				RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"}}, ""},
		"bind more": {localAdmin,
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"},
				RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "cluster-admin"}}, "not currently held"},
		"bind to nobody": {localAdmin, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "none"}}, `roles.rbac.authorization.k8s.io "none" not found`},
		"master": {mastersUser,
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"},
				RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "cluster-admin"}}, ""},
	} {
		a := &api.Admission{Operation: "CREATE", User: c.user, Namespace: "shop"}
		switch obj := c.obj.(type) {
		case *rbacv1.Role:
			a.Object, a.Resource = obj, rbacv1.SchemeGroupVersion.WithResource("roles")
		case *rbacv1.RoleBinding:
			a.Object, a.Resource = obj, rbacv1.SchemeGroupVersion.WithResource("rolebindings")
		}
		err := plugin.Validate(context.Background(), a)
		if (err == nil) != (c.error == "") || err != nil && !strings.Contains(err.Error(), c.error) {
			t.Errorf("%s: %v, want %q", name, err, c.error)
		}
	}
}

func TestEveryDefaultBindingHasItsRole(t *testing.T) {
	roles := map[string]bool{}
	for _, obj := range Defaults() {
		switch o := obj.(type) {
		case *rbacv1.ClusterRole:
			if roles[o.Name] {
				t.Errorf("cluster role %s twice", o.Name)
			}
			roles[o.Name] = true
		case *rbacv1.Role:
			roles[o.Namespace+"/"+o.Name] = true
		}
	}
	for _, obj := range Defaults() {
		switch o := obj.(type) {
		case *rbacv1.ClusterRoleBinding:
			if !roles[o.RoleRef.Name] {
				t.Errorf("%s binds %s, which is not there", o.Name, o.RoleRef.Name)
			}
		case *rbacv1.RoleBinding:
			if !roles[o.Namespace+"/"+o.RoleRef.Name] {
				t.Errorf("%s binds %s, which is not there", o.Name, o.RoleRef.Name)
			}
		}
	}
}

func BenchmarkAuthorize(b *testing.B) {
	o := testObjects()
	chain, err := New(nil, o)
	if err != nil {
		b.Fatal(err)
	}
	r := parseRequest("create :pods/binding shop/web")
	b.ReportAllocs()
	for b.Loop() {
		if d, _, _ := chain.Authorize(context.Background(), scheduler, r); d != api.Allow {
			b.Fatal("refused")
		}
	}
}
