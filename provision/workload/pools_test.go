package workload_test

import (
	"testing"

	daemons "clusterctl/daemons/config"
	"clusterctl/hcl/config"
	"clusterctl/provision/workload"
)

// What is applied of pools is what the controller reads, and nothing is where there is none.
func TestPoolsBecomeAConfigMap(t *testing.T) {
	off := false
	c := &config.Cluster{Name: "home"}
	found := func() (data map[string]string) {
		list, err := workload.Objects(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			if d.Object.GetKind() != "ConfigMap" {
				continue
			}
			if d.Object.GetNamespace() != "kube-system" || d.Object.GetName() != daemons.PoolsName || d.Keep {
				t.Errorf("%+v", d)
			}
			data = map[string]string{}
			for name, text := range d.Object.Object["data"].(map[string]any) {
				data[name] = text.(string)
			}
		}
		return data
	}
	if data := found(); data != nil {
		t.Errorf("without a pool: %v", data)
	}
	c.Pools = []config.Pool{{Pool: daemons.Pool{Name: "office", Addresses: []string{"10.0.0.10-10.0.0.20"}}},
		{Pool: daemons.Pool{Name: "edge", Addresses: []string{"fd00::/120"}, AutoAssign: &off, Namespaces: []string{"shop"}, Interfaces: []string{"eth1"}}}}
	pools, err := daemons.DecodePools(found())
	if err != nil || len(pools) != 2 || pools[0].Name != "edge" || *pools[0].AutoAssign || pools[0].Interfaces[0] != "eth1" || pools[1].Name != "office" || pools[1].AutoAssign != nil {
		t.Errorf("%+v, %v", pools, err)
	}
}
