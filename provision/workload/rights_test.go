package workload

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestRightsOfUsersOfFormerReleasesAreRemoved also checks that bindings with the same names stay if an API server did
// not create them.
// Proves S12.
func TestRightsOfUsersOfFormerReleasesAreRemoved(t *testing.T) {
	made := func(kind, namespace, name string) *unstructured.Unstructured {
		o := newItem("rbac.authorization.k8s.io/v1", kind, namespace, name, nil)
		o.SetLabels(map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"})
		return o
	}
	l, client := newFakeLive(made("ClusterRoleBinding", "", "system:kube-ingress"), made("ClusterRoleBinding", "",
		"system:replica:kube-ingress"), newItem("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "",
		"system:kube-dns", nil), made("RoleBinding", "kube-system", "system:kube-network"))
	registered := newItem("apiregistration.k8s.io/v1", "APIService", "", metricsService,
		map[string]any{"spec": map[string]any{"caBundle": "Y2E="}})
	registered.SetLabels(map[string]string{"app.kubernetes.io/managed-by": metricsServer})
	if err := client.Tracker().Add(registered); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.DropFormerRights(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"system:kube-ingress", "system:replica:kube-ingress", "system:kube-dns"} {
		_, err := client.Tracker().Get(clusterRoleBindings, "", name)
		if isGone := name == "system:kube-ingress"; apierrors.IsNotFound(err) != isGone {
			t.Errorf("%s: error %v, want it deleted: %v", name, err, isGone)
		}
	}
	if _, err := client.Tracker().Get(roleBindings, "kube-system", "system:kube-network"); !apierrors.IsNotFound(err) {
		t.Errorf("the binding in kube-system was not deleted: %v", err)
	}
	got, err := client.Tracker().Get(apiServices, "", metricsService)
	if err != nil {
		t.Fatal(err)
	}
	if o := got.(*unstructured.Unstructured); o.Object["spec"].(map[string]any)["caBundle"] != nil {
		t.Errorf("the API service has the authority still: %v", o.Object)
	}
}
