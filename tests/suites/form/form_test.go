// Package form runs a control plane as static pods on real machines, and changes it to units and back. The tests of
// provision/role cover the manifests.
package form

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/programs/webimage"
)

const testTimeout = 7 * time.Minute

// A control plane of static pods serves a workload and recovers when a process is killed. It is changed to units and
// back to static pods, and is as declared each time. All of this works if the API server refuses anonymous requests.
// Proves S12, S15.
func TestStaticPodControlPlanesServeRecoverAndChangeForm(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c, declared := startCluster(ctx, t)
	awaitAnswer(ctx, t, c)
	checkUnchanged(ctx, t, c)
	for name, kinds := range map[string][]string{
		"control": {cluster.ControlPlane, cluster.Nodes, cluster.WithProxy, cluster.WithDNS, cluster.StaticPods},
		"node":    {cluster.Nodes, cluster.WithProxy, cluster.WithDNS},
	} {
		if err := cluster.CheckDocumented(ctx, c.Lab.Machine(name), kinds...); err != nil {
			t.Error(err)
		}
	}

	control := c.Lab.Machine("control")
	before := restartCount(ctx, t, c)
	if _, err := control.Run(ctx, "kill -9 $(pgrep -x "+killedDaemon+")"); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Eventually(ctx, time.Minute, func(ctx context.Context) error {
		out, err := cluster.Output(c.KubectlCommand(ctx, "get", "pod", "-n", "kube-system", killedDaemon+"-control",
			"-o", podStatusPath))
		if err == nil && out != fmt.Sprintf("%d true", before+1) {
			err = fmt.Errorf("restarts and readiness are %q", out)
		}
		return err
	}); err != nil {
		t.Fatalf("%s does not come back with one more restart than %d: %v", killedDaemon, before, err)
	}
	awaitAnswer(ctx, t, c)

	closed := strings.Replace(declared, `control_plane = "static-pods"`, "control_plane = \"static-pods\"\n"+denyAnonymous, 1)
	if err := c.Write("cluster.hcl", closed); err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(ctx, os.Stderr); err != nil {
		t.Fatal(err)
	}
	checkUnchanged(ctx, t, c)
	checkAnonymousRefused(ctx, t, c)
	awaitHealthy(ctx, t, c)

	units := strings.Replace(closed, `control_plane = "static-pods"`, "", 1)
	for _, form := range []struct{ configuration, proof string }{
		{units, "systemctl is-active etcd kube-apiserver kube-scheduler kube-controller-manager && [ -z \"$(ls -A " +
			"/etc/kubernetes/manifests 2>/dev/null)\" ]"},
		{closed, "! systemctl is-active etcd kube-apiserver && ls /etc/kubernetes/manifests/etcd.yaml " +
			"/etc/kubernetes/manifests/kube-apiserver.yaml"},
	} {
		if err := c.Write("cluster.hcl", form.configuration); err != nil {
			t.Fatal(err)
		}
		if err := c.Apply(ctx, os.Stderr); err != nil {
			t.Fatal(err)
		}
		checkUnchanged(ctx, t, c)
		checkAnonymousRefused(ctx, t, c)
		if out, err := control.Run(ctx, form.proof); err != nil {
			t.Fatalf("the form is not as declared: %v: %s", err, out)
		}
		awaitAnswer(ctx, t, c)
	}
}

// denyAnonymous disables anonymous requests, even to the health endpoints.
const denyAnonymous = `  api {
    authentication = <<-END
      apiVersion: apiserver.config.k8s.io/v1
      kind: AuthenticationConfiguration
      anonymous: {enabled: false}
    END
  }`

// checkAnonymousRefused checks that the API server refuses anonymous requests.
func checkAnonymousRefused(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	out, err := c.Lab.Machine("control").
		Run(ctx, "for at in livez readyz version api; do curl -sk -o /dev/null -w '%{http_code} ' "+
			"https://127.0.0.1:6443/$at; done")
	if err != nil || strings.TrimSpace(string(out)) != "401 401 401 401" {
		t.Fatalf("without credentials the API server answers %q, %v", out, err)
	}
}

// awaitHealthy waits until the kubelet reports that the API server is healthy and has not restarted. The kubelet cannot
// use port 6443 for its probes, which refuses anonymous requests.
func awaitHealthy(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	if err := cluster.Eventually(ctx, time.Minute, func(ctx context.Context) error {
		out, err := cluster.Output(c.KubectlCommand(ctx, "get", "pod", "-n", "kube-system", "kube-apiserver-control",
			"-o",
			podStatusPath+" {.status.containerStatuses[0].started}"))
		if err == nil && out != "0 true true" {
			err = fmt.Errorf("restarts, readiness and start are %q", out)
		}
		return err
	}); err != nil {
		t.Fatalf("the static API server is not well: %v", err)
	}
}

// startCluster starts examples/static-pods with the demo's workload.
func startCluster(ctx context.Context, t *testing.T) (c *cluster.Cluster, declared string) {
	t.Helper()
	root, err := cluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for name, source := range map[string]string{"cluster.hcl": "examples/static-pods/cluster.hcl",
		"web.hcl": "tests/suites/demo/web.hcl"} {
		text, err := os.ReadFile(filepath.Join(root, source))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = strings.ReplaceAll(string(text), `user = "admin"`, `user = "root"`)
	}
	c, err = cluster.New(ctx, cluster.Options{Name: fmt.Sprintf("form-%d", os.Getpid()), Log: os.Stderr,
		Machines: []string{"control=10.99.0.11", "node=10.99.0.21"}, Files: files, HasPrograms: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(context.Background()); err != nil {
			t.Errorf("take the lab down: %v", err)
		}
	})
	if err := webimage.Write(c.Bundle, filepath.Join(c.Folder, "images/web.tar")); err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(ctx, os.Stderr); err != nil {
		t.Fatal(err)
	}
	return c, files["cluster.hcl"]
}

const killedDaemon = "kube-scheduler"

// podStatusPath is the output format for a static pod's restarts and readiness.
const podStatusPath = "jsonpath={.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}"

func restartCount(ctx context.Context, t *testing.T, c *cluster.Cluster) int {
	t.Helper()
	var n int
	if err := cluster.Eventually(ctx, 30*time.Second, func(ctx context.Context) error {
		out, err := cluster.Output(c.KubectlCommand(ctx, "get", "pod", "-n", "kube-system", killedDaemon+"-control",
			"-o", podStatusPath))
		if err != nil {
			return err
		}
		count, ready, _ := strings.Cut(out, " ")
		if ready != "true" {
			return fmt.Errorf("%s is not ready", killedDaemon)
		}
		n, err = strconv.Atoi(count)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// awaitAnswer waits until the workload answers through its Service's port on a node.
func awaitAnswer(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	client := &http.Client{
		Transport: &http.Transport{DialContext: c.Lab.Dial, DisableKeepAlives: true},
		Timeout:   5 * time.Second,
	}
	if err := cluster.Eventually(ctx, 30*time.Second, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://10.99.0.21:30080/", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err == nil && !strings.Contains(string(body), "hello from clusterctl") {
			err = fmt.Errorf("it answers %d %q", response.StatusCode, body)
		}
		return err
	}); err != nil {
		t.Fatalf("the workload does not answer through its Service: %v", err)
	}
}

func checkUnchanged(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	out, err := c.Clusterctl(ctx, "apply", "-auto-approve").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "No changes") {
		t.Fatalf("a second apply changes something: %v\n%s", err, out)
	}
}
