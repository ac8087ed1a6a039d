// Package flows tests on real machines what users expect of Kubernetes: it repairs itself, rolls out and back,
// discovers services, grows under load, and keeps data when a node is lost. Each script in testdata tests one scenario.
package flows

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/lab/cluster/script"
	"clusterctl/tests/programs/webimage"
)

var sharedCluster *cluster.Cluster

func TestMain(m *testing.M) {
	os.Exit(script.RunWithCluster(m, startCluster, "flows", &sharedCluster))
}

// clusterConfig is a control plane and three nodes, so that a set of three has one pod on each node. External clients
// connect through addresses of the lab and through Ingresses.
const clusterConfig = `
cluster "flows" {
  pod_cidrs     = ["10.244.0.0/16"]
  service_cidrs = ["10.96.0.0/16"]
  ingress {}
}

load_balancer "outside" {
  addresses = ["10.99.0.200-10.99.0.209"]
}

machine "control" {
  address = "10.99.0.11"
  roles   = ["control-plane"]
  ssh { user = "root" }
}

machine "node" {
  for_each = { a = "10.99.0.21", b = "10.99.0.22", c = "10.99.0.23" }
  address  = each.value
  roles    = ["node"]
  labels   = { "topology.kubernetes.io/zone" = each.key }
  ssh { user = "root" }
}
`

// startCluster starts this cluster with the demo's workload.
func startCluster(ctx context.Context, name string) (*cluster.Cluster, error) {
	root, err := cluster.Root()
	if err != nil {
		return nil, err
	}
	web, err := os.ReadFile(filepath.Join(root, "tests/suites/demo/web.hcl"))
	if err != nil {
		return nil, err
	}
	c, err := cluster.New(ctx, cluster.Options{Name: name, Log: os.Stderr,
		Machines: []string{"control=10.99.0.11", "a=10.99.0.21", "b=10.99.0.22", "c=10.99.0.23"},
		Files:    map[string]string{"cluster.hcl": clusterConfig, "web.hcl": string(web)}, HasPrograms: true})
	if err != nil {
		return nil, err
	}
	if err := webimage.Write(c.Bundle, filepath.Join(c.Folder, "images/web.tar")); err != nil {
		return c, err
	}
	return c, c.Apply(ctx, os.Stderr)
}

// Scenarios that do not affect the machines run in parallel.
func TestFlows(t *testing.T) { script.Run(t, sharedCluster, "kubectl", script.Files(t, "flows")...) }

// Scenarios that fill nodes or cut their power run one after the other.
func TestExclusiveFlows(t *testing.T) {
	for _, file := range script.Files(t, "alone") {
		t.Run("", func(t *testing.T) { script.Run(t, sharedCluster, "kubectl", file) })
	}
}
