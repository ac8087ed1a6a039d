package workload

import (
	"reflect"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	daemons "clusterctl/daemons/config"
	"clusterctl/hcl/config"
)

// The ingress proxies of machines that are not yet updated keep the right to create services for Gateways until the
// last one is updated.
func TestFormerIngressProxiesKeepTheirRightsUntilTheirUpdate(t *testing.T) {
	subjects := func(former bool) []any {
		t.Helper()
		in := &config.Ingress{Class: "web"}
		in.Settings.Choose("gateway_addresses", daemons.OfLoadBalancer)
		all, err := Objects(&config.Cluster{Name: "c", Ingress: in, HasFormerUsers: former})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			if d.Object.GetName() == gatewayAddresses {
				list, _, _ := unstructured.NestedSlice(d.Object.Object, "subjects")
				return list
			}
		}
		t.Fatal("there is no binding")
		return nil
	}
	during, after := subjects(true), subjects(false)
	if len(during) != 2 || during[1].(map[string]any)["kind"] != rbacv1.UserKind || len(after) != 1 {
		t.Fatalf("bound are %v while machines are updated, and %v afterwards", during, after)
	}
	l, client := newFakeLive(newItem("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", gatewayAddresses,
		map[string]any{"subjects": during}))
	for range 2 {
		if err := l.DropFormerRights(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got, err := client.Tracker().Get(clusterRoleBindings, "", gatewayAddresses)
	if err != nil {
		t.Fatal(err)
	}
	if list := got.(*unstructured.Unstructured).Object["subjects"]; !reflect.DeepEqual(list, any(after)) {
		t.Errorf("bound are %v, want %v", list, after)
	}
}
