package config

import "testing"

func TestSelectionsIncludeInstancesAndModules(t *testing.T) {
	for _, c := range []struct {
		selection, address string
		want               bool
	}{
		{"machine.node", "machine.node", true},
		{"machine.node", `machine.node["a"]`, true},
		{"machine.node", "machine.nodes", false},
		{`machine.node["a"]`, `machine.node["b"]`, false},
		{"module.shop", "module.shop.machine.node", true},
		{"module.shop", `module.shop["a"].machine.node[0]`, true},
		{`module.shop["a"]`, `module.shop["a"].workload.web`, true},
		{`module.shop["a"]`, `module.shop["b"].workload.web`, false},
		{"module.shop.module.inner", `module.shop.module.inner[1].workload.web`, true},
		{"module.shop", "module.shopping.workload.web", false},
		{"module.shop.workload.web", `module.shop.workload.web["a"]`, true},
		{"object.v1.ConfigMap", "object.v1.ConfigMap.motd", false},
	} {
		if got := Includes(c.selection, c.address); got != c.want {
			t.Errorf("%s covers %s: %v", c.selection, c.address, got)
		}
	}
}
