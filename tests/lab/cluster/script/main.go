package script

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"clusterctl/tests/lab/cluster"
)

// startTimeout is how long a cluster may take to start.
const startTimeout = 20 * time.Minute

// RunWithCluster runs a package's tests with a cluster, which it stores in shared and takes down afterwards. start
// starts the cluster under a name that begins with name. If it fails, the cluster that it returns is taken down.
// RunWithCluster returns the exit code.
func RunWithCluster(m *testing.M, start func(ctx context.Context, name string) (*cluster.Cluster, error), name string,
	shared **cluster.Cluster) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	c, err := start(ctx, fmt.Sprintf("%s-%d", name, os.Getpid()))
	if c != nil {
		defer func() {
			if err := c.Down(context.WithoutCancel(ctx)); err != nil {
				fmt.Fprintln(os.Stderr, "take the lab down:", err)
				code = 1
			}
		}()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bring a cluster up:", err)
		return 1
	}
	*shared = c
	return m.Run()
}
