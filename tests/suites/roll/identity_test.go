package roll

import (
	"context"
	"strings"
	"testing"

	"clusterctl/tests/lab/cluster"
)

// Renaming blocks neither changes the machines nor makes them new ones. A control plane of two machines with one etcd
// member grows to three, with names before and between the existing ones.
// Proves S10, P05.
func TestRenamedMachinesStayAndNewOnesJoin(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), applyTimeout)
	defer cancel()
	c := startCluster(ctx, t, "identity", `cluster "identity" {}

machine "first" {
  name    = "b"
  address = "10.99.0.11"
  roles   = ["control-plane"]
  ssh { user = "root" }
}

machine "second" {
  name    = "c"
  address = "10.99.0.12"
  roles   = ["control-plane"]
  ssh { user = "root" }
}
`)
	const began = "systemctl show -p InvocationID etcd kube-apiserver kube-scheduler kube-controller-manager"
	before := map[string]string{}
	for _, m := range c.Lab.Machines[:2] {
		text, err := m.Run(ctx, began)
		if err != nil {
			t.Fatal(err)
		}
		before[m.Name] = text
	}
	renamed := func(addresses string) string {
		return `cluster "identity" {}

machine "plane" {
  for_each = { ` + addresses + ` }
  name     = each.key
  address  = each.value
  roles    = ["control-plane"]
  ssh { user = "root" }
}
`
	}
	if err := c.Write("cluster.hcl", renamed(`b = "10.99.0.11", c = "10.99.0.12"`)); err != nil {
		t.Fatal(err)
	}
	out, err := c.Clusterctl(ctx, "apply", "-auto-approve").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "2 to move") ||
		!strings.Contains(string(out), "was machine.first") {
		t.Fatalf("it is not a move: %v\n%s", err, out)
	}
	for _, m := range c.Lab.Machines[:2] {
		if text, err := m.Run(ctx, began); err != nil || text != before[m.Name] {
			t.Errorf("%s: units were restarted: %s, then %s, %v", m.Name, before[m.Name], text, err)
		}
	}

	if err := c.Write("cluster.hcl", renamed(`a = "10.99.0.13", b = "10.99.0.11", c = "10.99.0.12"`)); err != nil {
		t.Fatal(err)
	}
	if out, err := c.Clusterctl(ctx, "apply", "-auto-approve").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err = c.Clusterctl(ctx, "plan", "-detailed-exitcode").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "etcd: 3 members, survives the loss of 1.") {
		t.Errorf("not as declared afterwards: %v\n%s", err, out)
	}
	if err := c.Lab.Machine("c1").PowerCut(ctx); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Eventually(ctx, applyTimeout, func(ctx context.Context) error {
		_, err := c.Lab.Machine("c3").Run(ctx, "curl -ksf https://127.0.0.1:6443/readyz")
		return err
	}); err != nil {
		t.Errorf("two of three members do not serve: %v", err)
	}
}
