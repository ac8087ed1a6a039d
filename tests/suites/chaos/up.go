package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/programs/webimage"
	"clusterctl/tests/suites/chaos/fault"
)

// machineNames are the machines of examples/ha, by their names in the cluster.
var machineNames = fault.Machines{Control: []string{"c1", "c2", "c3"}, Nodes: []string{"n1", "n2", "n3"}}

// machineAddresses are the addresses of the machines in examples/ha.
var machineAddresses = map[string]string{"c1": "10.99.0.11", "c2": "10.99.0.12", "c3": "10.99.0.13",
	"n1": "10.99.0.21", "n2": "10.99.0.22", "n3": "10.99.0.23"}

// diskBytes is the size of each machine's disk, which is small enough to be filled.
const diskBytes = 3 << 30

// workloadConfig is the workload that must go on answering: three pods, one for each node, behind a Service. The CPU
// requests of its pods and clients are so high that they get enough CPU time on a busy host. Otherwise the checks would
// report unanswered requests.
const workloadConfig = `
image "web" { archive = "images/web.tar" }

object "v1" "Namespace" "shop" {}
object "v1" "Namespace" "chaos" {}

object "apps/v1" "Deployment" "web" {
  namespace = "shop"
  spec = {
    replicas = 3
    selector = { matchLabels = { app = "web" } }
    template = {
      metadata = { labels = { app = "web" } }
      spec = {
        topologySpreadConstraints = [{
          maxSkew = 1, topologyKey = "kubernetes.io/hostname", whenUnsatisfiable = "ScheduleAnyway"
          labelSelector = { matchLabels = { app = "web" } }
        }]
        containers = [{
          name           = "web"
          image          = image.web.reference
          ports          = [{ containerPort = 8080 }]
          resources      = { requests = { cpu = "250m", memory = "32Mi" } }
          readinessProbe = { httpGet = { path = "/healthz", port = 8080 }, periodSeconds = 2, timeoutSeconds = 5 }
        }]
      }
    }
  }
}

object "v1" "Service" "web" {
  namespace = "shop"
  spec = {
    selector = { app = "web" }
    ports    = [{ port = 80, targetPort = 8080 }]
  }
}
`

// startCluster starts the cluster of examples/ha with the workload.
func startCluster(ctx context.Context, name string) (*cluster.Cluster, error) {
	root, err := cluster.Root()
	if err != nil {
		return nil, err
	}
	files := map[string]string{"workload.hcl": workloadConfig}
	for _, file := range []string{"cluster.hcl", "nodes.auto.clustervars"} {
		text, err := os.ReadFile(filepath.Join(root, "examples/ha", file))
		if err != nil {
			return nil, err
		}
		files[file] = strings.ReplaceAll(string(text), `user = "admin"`,
			`user = "root"`) // the lab's user admin has a password
	}
	var list []string
	for _, m := range append(append([]string{}, machineNames.Control...), machineNames.Nodes...) {
		list = append(list, m+"="+machineAddresses[m])
	}
	c, err := cluster.New(ctx,
		cluster.Options{Name: name, Machines: list, Files: files, Disk: diskBytes, Log: os.Stdout, HasPrograms: true})
	if err != nil {
		return nil, err
	}
	if err := webimage.Write(c.Bundle, filepath.Join(c.Folder, "images/web.tar")); err != nil {
		return nil, err
	}
	started := time.Now()
	if err := c.Apply(ctx, os.Stdout); err != nil {
		return nil, err
	}
	fmt.Printf("chaos: examples/ha is up on lab %s after %.1f s\n", name, time.Since(started).Seconds())
	return c, nil
}
