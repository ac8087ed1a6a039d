package disaster

import (
	"context"
	"strings"
	"testing"
)

// testEverythingRenamed tests a configuration in which all blocks were renamed at once.
func testEverythingRenamed(ctx context.Context, t *testing.T) {
	c := startMachines(ctx, t, "renamed", []string{"c1=10.99.0.11", "n1=10.99.0.21", "n2=10.99.0.22"}, `cluster "renamed" {}

machine "control" {
  address = "10.99.0.11"
  roles   = ["control-plane"]
  ssh { user = "root" }
}

machine "node" {
  count   = 2
  name    = "n${count.index + 1}"
  address = "10.99.0.2${count.index + 1}"
  roles   = ["node"]
  ssh { user = "root" }
}
`)
	if err := c.Apply(ctx, t.Output()); err != nil {
		t.Fatal(err)
	}
	const began = "systemctl show -p InvocationID etcd kube-apiserver kubelet containerd kube-proxy"
	before := map[string]string{}
	for _, m := range c.Lab.Machines {
		text, err := m.Run(ctx, began)
		if err != nil {
			t.Fatal(err)
		}
		before[m.Name] = text
	}
	const renamed = `cluster "renamed" {}

machine "plane" {
  for_each = { control = "10.99.0.11" }
  name     = each.key
  address  = each.value
  roles    = ["control-plane"]
  ssh { user = "root" }
}

machine "worker" {
  for_each = { n2 = "10.99.0.22", n1 = "10.99.0.21" }
  name     = each.key
  address  = each.value
  roles    = ["node"]
  ssh { user = "root" }
}
`
	if err := c.Write("cluster.hcl", strings.ReplaceAll(renamed, "name     = each.key", "")); err != nil {
		t.Fatal(err)
	}
	mustRefuse(ctx, t, c, `write name = "n1" in this block`, "apply", "-auto-approve")
	if err := c.Write("cluster.hcl", renamed); err != nil {
		t.Fatal(err)
	}
	if output := clusterctl(ctx, t, c, "apply", "-auto-approve"); !strings.Contains(output, "3 to move") {
		t.Errorf("it is not a move:\n%s", output)
	}
	for _, m := range c.Lab.Machines {
		if text, err := m.Run(ctx, began); err != nil || text != before[m.Name] {
			t.Errorf("%s: units were restarted: %s, then %s, %v", m.Name, before[m.Name], text, err)
		}
	}
	checkDeclared(ctx, t, c)
}
