package workload

import (
	"testing"

	"clusterctl/hcl/config"
)

func TestObjectsAreAppliedAfterTheirDependencies(t *testing.T) {
	object := func(block, namespace, name string, after ...string) config.Object {
		return config.Object{
			Address: "object.v1." + namespace + "/" + name, Block: block, DependsOn: after,
			Content: map[string]any{
				"apiVersion": "v1",
				"kind":       "ConfigMap",
				"metadata":   map[string]any{"name": name, "namespace": namespace},
			},
		}
	}
	first := testWorkload
	first.Name, first.Address, first.DependsOn = "first", `module.shop.workload.first["a"]`, []string{
		"object.v1.ConfigMap.middle",
	}
	list, err := Objects(&config.Cluster{
		Workloads: []config.Workload{first},
		Objects: []config.Object{
			object("object.v1.ConfigMap.last", "a", "last", "module.shop"),
			object("object.v1.ConfigMap.middle", "a", "middle", "object.v1.ConfigMap.base", "machine.m"),
			object("object.v1.ConfigMap.base", "a", "base"),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for i, d := range list {
		at[d.Object.GetKind()+" "+d.Object.GetName()] = i
	}
	order := []string{"Namespace a", "ConfigMap base", "ConfigMap middle", "Deployment first", "ConfigMap last"}
	for i := range order[1:] {
		if at[order[i]] > at[order[i+1]] {
			t.Errorf("%s comes after %s", order[i], order[i+1])
		}
	}
	if w := list[len(list)-1].Wave; w != 3 {
		t.Errorf("the last is in wave %d, not 3", w)
	}
}
