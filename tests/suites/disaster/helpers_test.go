package disaster

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"clusterctl/tests/lab/cluster"
)

// startMachines starts machines, each NAME=ADDRESS, and applies nothing yet.
func startMachines(ctx context.Context, t *testing.T, name string, machines []string,
	declared string) *cluster.Cluster {
	t.Helper()
	c, err := cluster.New(
		ctx,
		cluster.Options{
			Name:     fmt.Sprintf("%s-%d", name, os.Getpid()),
			Log:      os.Stderr,
			Machines: machines,
			Files:    map[string]string{"cluster.hcl": declared},

			HasPrograms: true,
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(context.Background()); err != nil {
			t.Errorf("take the lab down: %v", err)
		}
	})
	return c
}

// clusterctl runs clusterctl, which must succeed, and returns its output.
func clusterctl(ctx context.Context, t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	out, err := c.Clusterctl(ctx, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("clusterctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// mustRefuse runs clusterctl, which must fail and print a text.
func mustRefuse(ctx context.Context, t *testing.T, c *cluster.Cluster, message string, args ...string) {
	t.Helper()
	out, err := c.Clusterctl(ctx, args...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), message) {
		t.Fatalf("clusterctl %s is not refused with %q: %v\n%s", strings.Join(args, " "), message, err, out)
	}
}

// checkDeclared checks that a plan has nothing to do and that the API is served.
func checkDeclared(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	clusterctl(ctx, t, c, "plan", "-detailed-exitcode")
	if out, err := c.KubectlCommand(ctx, "get", "--raw", "/readyz").CombinedOutput(); err != nil {
		t.Fatalf("the API is not served: %v\n%s", err, out)
	}
}
