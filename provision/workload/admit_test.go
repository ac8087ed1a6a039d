package workload

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The new users get the rights of the former ones, in bindings that an API server created and in no others.
func TestNewUsersGetTheRightsOfTheFormerOnes(t *testing.T) {
	user := map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:kube-dns"}
	o := newItem("rbac.authorization.k8s.io/v1", "RoleBinding", "kube-system", "system:kube-dns",
		map[string]any{"subjects": []any{user}})
	o.SetLabels(map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"})
	theirs := newItem("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", "system:kube-ingress",
		map[string]any{"subjects": []any{user}})
	l, client := newFakeLive(o, theirs)
	for range 2 {
		if err := l.AdmitReplicas(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got, err := client.Tracker().Get(roleBindings, "kube-system", "system:kube-dns")
	if err != nil {
		t.Fatal(err)
	}
	list := got.(*unstructured.Unstructured).Object["subjects"].([]any)
	if len(list) != 2 || list[1].(map[string]any)["kind"] != "Group" ||
		list[1].(map[string]any)["name"] != "system:kube-dns" {
		t.Errorf("bound are %v", list)
	}
	if got, err = client.Tracker().Get(clusterRoleBindings, "", "system:kube-ingress"); err != nil {
		t.Fatal(err)
	}
	if list := got.(*unstructured.Unstructured).Object["subjects"].([]any); len(list) != 1 {
		t.Errorf("a binding of another user has %v", list)
	}
}
