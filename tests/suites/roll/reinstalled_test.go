package roll

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"clusterctl/tests/lab/cluster"
)

// A control-plane machine whose disk was replaced, and that was reinstalled under its name, is repaired by one apply.
// It has its etcd member and a new Node. The former Node is deleted with its pods, which no longer exist.
// Proves S22.
func TestReinstalledMachinesGetNewNodes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), applyTimeout)
	defer cancel()
	c := startCluster(ctx, t, "reinstalled", strings.Replace(clusterConfig, `["control-plane"]`, `["control-plane", "node"]`, 1))
	node := func(path string) (string, error) {
		text, err := cluster.Output(c.KubectlCommand(ctx, "get", "node", "c-3", "-o", "jsonpath="+path))
		return strings.TrimSpace(text), err
	}
	const jsonPath = "{.metadata.uid} {.spec.providerID}"
	var before []string
	if err := cluster.Eventually(ctx, applyTimeout, func(context.Context) error {
		text, err := node(jsonPath)
		if before = strings.Fields(text); len(before) != 2 {
			return fmt.Errorf("c3 has no provider ID yet: %w", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.Lab.Machine("c3").Reinstall(ctx); err != nil {
		t.Fatal(err)
	}
	applyAndCheck(ctx, t, c, "the machine is installed anew")
	if err := cluster.Eventually(ctx, applyTimeout, func(context.Context) error {
		text, err := node(jsonPath)
		after := strings.Fields(text)
		if err != nil || len(after) != 2 || after[0] == before[0] || after[1] == before[1] {
			return fmt.Errorf("the Node was %v, and is %v: %w", before, after, err)
		}
		ready, err := node(`{.status.conditions[?(@.type=="Ready")].status} {.metadata.labels}`)
		if err != nil || !strings.HasPrefix(ready, "True") ||
			!strings.Contains(ready, "node-role.kubernetes.io/control-plane") {
			return fmt.Errorf("the Node is ready, and has the labels: %s, %w", ready, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if events, err := cluster.Output(c.KubectlCommand(ctx, "get", "events", "-A", "--field-selector",
		"reason=MachineReplaced",
		"-o", "name")); err != nil ||
		strings.TrimSpace(events) != "" {
		t.Errorf("the Node is said to be another machine's: %v, %s", err, events)
	}
	out, err := c.Clusterctl(ctx, "plan", "-detailed-exitcode").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "etcd: 3 members, survives the loss of 1.") {
		t.Errorf("not as declared afterwards: %v\n%s", err, out)
	}
}
