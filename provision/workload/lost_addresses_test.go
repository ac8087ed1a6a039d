package workload

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	daemons "clusterctl/daemons/config"
	"clusterctl/hcl/config"
	"clusterctl/provision/state"
)

// Before a pool is removed or reduced, the plan shows which services lose their addresses.
func TestThePlanSaysWhichServicesLoseTheirAddresses(t *testing.T) {
	pools := func(addresses string) map[string]any {
		return map[string]any{"data": map[string]any{"office": `{"addresses":["` + addresses + `"]}`}}
	}
	existing := newOwnObject("v1", "ConfigMap", "kube-system", daemons.PoolsName)
	existing.Object["data"] = pools("10.0.0.10-10.0.0.20")["data"]
	balanced := func(name, address string) *unstructured.Unstructured {
		return newItem(
			"v1",
			"Service",
			"shop",
			name,
			map[string]any{
				"status": map[string]any{
					"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": address}}},
				},
			},
		)
	}
	l, client := newFakeLive(existing, balanced("web", "10.0.0.19"), balanced("api", "10.0.0.11"),
		balanced("theirs", "192.0.2.1"))
	client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.PatchActionImpl)
		applied := &unstructured.Unstructured{}
		if err := json.Unmarshal(p.Patch, &applied.Object); err != nil {
			t.Error(err)
		}
		return true, applied, nil
	})
	noted := func(c *config.Cluster) string {
		t.Helper()
		entries, _, err := l.Plan(
			t.Context(),
			c,
			[]state.Object{
				{
					APIVersion: "v1",
					Kind:       "ConfigMap",
					Namespace:  "kube-system",
					Name:       daemons.PoolsName,
					Address:    "cluster.home",
				},
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name == "kube-system/"+daemons.PoolsName {
				return e.Action + ": " + e.Note
			}
		}
		return ""
	}
	smaller := &config.Cluster{
		Name:  "home",
		Pools: []config.Pool{{Pool: daemons.Pool{Name: "office", Addresses: []string{"10.0.0.10-10.0.0.15"}}}},
	}
	if got, want := noted(smaller), "change: services lose their addresses: shop/web (10.0.0.19)"; got != want {
		t.Errorf("a smaller pool: %q, want %q", got, want)
	}
	if got, want := noted(&config.Cluster{Name: "home", HadPools: true}), "change: services lose their addresses: "+
		"shop/api (10.0.0.11), shop/web (10.0.0.19)"; got != want {
		t.Errorf("no pool any more: %q, want %q", got, want)
	}
}
