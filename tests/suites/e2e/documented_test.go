package e2e

import (
	"context"
	"testing"
	"time"

	"clusterctl/tests/lab/cluster"
)

// Listeners and file modes are as docs/operations.md documents them.
// Proves S12.
func TestListenersAndFileModesAreAsDocumented(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, kinds := range map[string][]string{
		"control": {cluster.ControlPlane, cluster.WithDNS},
		"a":       {cluster.Nodes, cluster.WithProxy, cluster.WithDNS},
		"b":       {cluster.Nodes, cluster.WithProxy},
	} {
		if err := cluster.CheckDocumented(ctx, sharedCluster.Lab.Machine(name), kinds...); err != nil {
			t.Error(err)
		}
	}
}
