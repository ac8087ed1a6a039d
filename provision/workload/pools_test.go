package workload_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	daemons "clusterctl/daemons/config"
	"clusterctl/hcl/config"
	"clusterctl/provision/workload"
)

// Pools are applied in the format that the controller reads. A cluster that never had pools has no ConfigMap. If all
// pools were removed, the ConfigMap states this, because a missing ConfigMap has no meaning.
func TestPoolsAreAppliedAsAConfigMap(t *testing.T) {
	off := false
	c := &config.Cluster{Name: "home"}
	found := func() (data, annotations map[string]string) {
		list, err := workload.Objects(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			if d.Object.GetKind() != "ConfigMap" {
				continue
			}
			if d.Object.GetNamespace() != "kube-system" || d.Object.GetName() != daemons.PoolsName || d.IsNeverPruned {
				t.Errorf("%+v", d)
			}
			data, _, _ = unstructured.NestedStringMap(d.Object.Object, "data")
			annotations = d.Object.GetAnnotations()
		}
		return data, annotations
	}
	if data, annotations := found(); data != nil || annotations != nil {
		t.Errorf("without a pool: %v, %v", data, annotations)
	}
	c.HadPools = true
	if _, annotations := found(); annotations == nil {
		t.Error("that there are none any more is not said")
	}
	if pools, err := daemons.ReadPools(found()); err != nil || len(pools) > 0 {
		t.Errorf("without a pool any more: %v, %v", pools, err)
	}
	c.Objects = []config.Object{{Address: "object.own", Content: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"name":      daemons.PoolsName,
			"namespace": "kube-system",
		}, "data": map[string]any{"office": `{"addresses":["10.0.0.7"]}`}}}}
	if pools, err := daemons.ReadPools(found()); err != nil || len(pools) != 1 {
		t.Errorf("with one of one's own: %v, %v", pools, err)
	}
	c.Objects = nil
	c.Pools = []config.Pool{{Pool: daemons.Pool{Name: "office", Addresses: []string{"10.0.0.10-10.0.0.20"}}},
		{
			Pool: daemons.Pool{
				Name:       "edge",
				Addresses:  []string{"fd00::/120"},
				AutoAssign: &off,
				Namespaces: []string{"shop"},
				Interfaces: []string{"eth1"},
			},
		}}
	pools, err := daemons.ReadPools(found())
	if err != nil || len(pools) != 2 || pools[0].Name != "edge" || *pools[0].AutoAssign ||
		pools[0].Interfaces[0] != "eth1" ||
		pools[1].Name != "office" ||
		pools[1].AutoAssign != nil {
		t.Errorf("%+v, %v", pools, err)
	}
}
