package disaster

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// testStateLost tests a workstation whose folder .clusterctl is lost, truncated, or older than the cluster.
//
//style:long one scenario: the state of one cluster is lost, truncated and outdated, in order
func testStateLost(ctx context.Context, t *testing.T) {
	const declared = `cluster "kept" {
  encryption { key = "first" }
}

machine "control" {
  for_each = { c1 = "10.99.0.11", c2 = "10.99.0.12", c3 = "10.99.0.13" }
  name     = each.key
  address  = each.value
  roles    = ["control-plane"]
  ssh { user = "root" }
}

machine "node" {
  name    = "n1"
  address = "10.99.0.21"
  roles   = ["node"]
  ssh { user = "root" }
}

object "v1" "ConfigMap" "motd" {
  data = { text = "hello" }
}
`
	const temporary = `
object "v1" "ConfigMap" "temporary" {
  data = { text = "soon gone" }
}
`
	c := startMachines(ctx, t, "state-lost",
		[]string{"c1=10.99.0.11", "c2=10.99.0.12", "c3=10.99.0.13", "n1=10.99.0.21"}, declared)
	if err := c.Apply(ctx, t.Output()); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(c.Folder, ".clusterctl", "state.json")
	old, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Write("cluster.hcl", declared+temporary); err != nil {
		t.Fatal(err)
	}
	clusterctl(ctx, t, c, "apply", "-auto-approve")
	before := clusterctl(ctx, t, c, "state", "list")
	kubeconfig, err := os.ReadFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}

	// The state is lost. A plan of a new cluster is refused, because the machines belong to a cluster.
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	mustRefuse(ctx, t, c, "clusterctl state rebuild", "apply", "-auto-approve")
	output := clusterctl(ctx, t, c, "state", "rebuild")
	if !strings.Contains(output, "The state knows 4 machines, of which 3 have a member of the store, and ") ||
		strings.Contains(output, "missing") {
		t.Errorf("it says:\n%s", output)
	}
	checkDeclared(ctx, t, c)
	if now := clusterctl(ctx, t, c, "state", "list"); sortLines(now) != sortLines(before) ||
		!strings.Contains(now, "object.v1.ConfigMap.temporary") {
		t.Errorf("the state knew\n%s\nand knows\n%s", before, now)
	}
	mustRefuse(ctx, t, c, "there is a state", "state", "rebuild")

	// An object that is no longer declared is deleted, as it would be with the former state.
	if err := c.Write("cluster.hcl", declared); err != nil {
		t.Fatal(err)
	}
	clusterctl(ctx, t, c, "apply", "-auto-approve")
	if out, err := c.KubectlCommand(ctx, "get", "configmap", "temporary").CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "NotFound") {
		t.Errorf("the object is still there: %v\n%s", err, out)
	}

	// The state is truncated.
	if err := os.WriteFile(at, old[:len(old)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	mustRefuse(ctx, t, c, "clusterctl state rebuild", "plan")
	if output := clusterctl(ctx, t, c, "state", "rebuild"); !strings.Contains(output,
		"is now .clusterctl/versions/unreadable-") {
		t.Errorf("it says:\n%s", output)
	}
	checkDeclared(ctx, t, c)

	// The state is older than the cluster. What it lacks is found to be done, or is found again.
	if err := os.WriteFile(at, old, 0o600); err != nil {
		t.Fatal(err)
	}
	clusterctl(ctx, t, c, "apply", "-auto-approve")
	checkDeclared(ctx, t, c)

	// No credentials have changed meanwhile.
	if err := os.WriteFile(c.Kubeconfig(), kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	checkDeclared(ctx, t, c)
}

func sortLines(lines string) string {
	return strings.Join(slices.Sorted(strings.Lines(lines)), "")
}
