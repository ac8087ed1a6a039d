// Package e2e tests a cluster of real machines from outside, with the real binaries. Each script in testdata tests one
// behaviour. All scripts use one cluster.
package e2e

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/lab/cluster/script"
	"clusterctl/tests/lab/machines"
	"clusterctl/tests/programs/webimage"
)

var sharedCluster *cluster.Cluster

func TestMain(m *testing.M) {
	os.Exit(script.RunWithCluster(m, startCluster, "e2e", &sharedCluster))
}

// startCluster starts examples/small, with pods of both address families, and the demo's workload.
func startCluster(ctx context.Context, name string) (*cluster.Cluster, error) {
	root, err := cluster.Root()
	if err != nil {
		return nil, err
	}
	small, err := os.ReadFile(filepath.Join(root, "examples/small/cluster.hcl"))
	if err != nil {
		return nil, err
	}
	web, err := os.ReadFile(filepath.Join(root, "tests/suites/demo/web.hcl"))
	if err != nil {
		return nil, err
	}
	both := strings.NewReplacer(
		`["10.244.0.0/16"]`,
		`["10.244.0.0/16", "fd00:244::/48"]`,
		`["10.96.0.0/16"]`,
		`["10.96.0.0/16", "fd00:96::/112"]`,
		`address = "10.99.0.11"`,
		"address = \"10.99.0.11\"\n  second_address = \""+machines.IPv6Of("10.99.0.11")+`"`,
		`address  = each.value`,
		"address  = each.value\n  second_address = \""+strings.TrimSuffix(machines.IPv6Of("10.99.0.1"),
			"1")+`${split(".", each.value)[3]}"`,
	)
	c, err := cluster.New(ctx, cluster.Options{Name: name, Log: os.Stderr,
		Machines: []string{"control=10.99.0.11", "a=10.99.0.21", "b=10.99.0.22"},
		Files:    map[string]string{"cluster.hcl": both.Replace(string(small)), "web.hcl": string(web)}})
	if err != nil {
		return nil, err
	}
	if err := webimage.Write(c.Bundle, filepath.Join(c.Folder, "images/web.tar"), "operator", "bookshop"); err != nil {
		return c, err
	}
	return c, c.Apply(ctx, os.Stderr)
}

var everyScript = flag.Bool("every-script", false, "run every script with Debian's kubectl, too")

func TestKubectl(t *testing.T) { runScripts(t, "kubectl", script.Files(t, "kubectl")...) }
func TestCluster(t *testing.T) { runScripts(t, "kubectl", script.Files(t, "cluster")...) }

// Debian's kubectl is years older than the current one. Without -every-script it runs only the scripts in which its
// requests differ from those of the current one: scripts that name a version of kubectl, and those that stream,
// discover or apply.
func TestKubectlDebian(t *testing.T) {
	files := script.Files(t, "kubectl")
	if !*everyScript {
		other := []string{"streams.txt", "discovery.txt", "server_side.txt"}
		files = slices.DeleteFunc(files, func(file string) bool {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			return !strings.Contains(string(text), "kubectl:1.") && !slices.Contains(other, filepath.Base(file))
		})
	}
	runScripts(t, "kubectl-debian", files...)
}

// Scripts that take nodes out of service run one after the other.
func TestKubectlNodes(t *testing.T) {
	kubectls := []string{"kubectl"}
	if *everyScript {
		kubectls = append(kubectls, "kubectl-debian")
	}
	for _, kubectl := range kubectls {
		for _, file := range script.Files(t, "nodes") {
			t.Run("", func(t *testing.T) { runScripts(t, kubectl, file) })
		}
	}
}

// Scripts that change the machines or workloads run one after the other.
func TestClusterctl(t *testing.T) { runInTurn(t, script.Files(t, "clusterctl")) }

// So do scripts that change how the control plane authenticates, or which services it runs.
func TestControlPlane(t *testing.T) { runInTurn(t, script.Files(t, "controlplane")) }

func runInTurn(t *testing.T, files []string) {
	for _, file := range files {
		t.Run("", func(t *testing.T) { runScripts(t, "kubectl", file) })
	}
}

func runScripts(t *testing.T, kubectl string, files ...string) {
	t.Helper()
	script.Run(t, sharedCluster, kubectl, files...)
}
