// Package roll changes a control plane of three real machines: one by one while the others are healthy, and not at all
// if that would cost the majority. The tests of provision/plan cover the decisions.
package roll

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"clusterctl/tests/lab/cluster"
)

const applyTimeout = 5 * time.Minute

const clusterConfig = `cluster "roll" {}

machine "c" {
  for_each = { "1" = "10.99.0.11", "2" = "10.99.0.12", "3" = "10.99.0.13" }
  address  = each.value
  roles    = ["control-plane"]
  ssh { user = "root" }
}
`

// startCluster creates a control plane of three machines with a configuration.
func startCluster(ctx context.Context, t *testing.T, name, declared string) *cluster.Cluster {
	t.Helper()
	c, err := cluster.New(ctx, cluster.Options{Name: fmt.Sprintf("%s-%d", name, os.Getpid()), Log: os.Stderr,
		Machines: []string{
			"c1=10.99.0.11",
			"c2=10.99.0.12",
			"c3=10.99.0.13",
		}, Files: map[string]string{"cluster.hcl": declared}, HasPrograms: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(context.Background()); err != nil {
			t.Errorf("take the lab down: %v", err)
		}
	})
	if err := c.Apply(ctx, os.Stderr); err != nil {
		t.Fatal(err)
	}
	return c
}

// No change costs the control plane its majority.
// Proves S12.
func TestControlPlaneChangesKeepTheMajority(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), applyTimeout)
	defer cancel()
	c := startCluster(ctx, t, "roll", clusterConfig)
	for _, m := range c.Lab.Machines {
		if _, err := m.Run(ctx, "sed -i s/^RestartSec=.*/RestartSec=2/ /etc/systemd/system/etcd.service"); err != nil {
			t.Fatal(err)
		}
	}
	third := c.Lab.Machine("c3")
	if err := third.Disconnect(ctx); err != nil {
		t.Fatal(err)
	}
	out, err := c.Clusterctl(ctx, "apply", "-auto-approve", "-exclude", `machine.c["3"]`).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "1 of 3 members would be left, 2 must agree (c-3") {
		t.Fatalf("it is not refused: %v\n%s", err, out)
	}
	for _, m := range c.Lab.Machines[:2] {
		if text, err := m.Run(ctx, "grep RestartSec /etc/systemd/system/etcd.service"); err != nil ||
			!strings.Contains(text, "RestartSec=2") {
			t.Errorf("%s was changed although the run was refused: %s, %v", m.Name, text, err)
		}
	}
	if err := third.Reconnect(ctx); err != nil {
		t.Fatal(err)
	}
	// When the third machine is back, all of them change, one after the other.
	if err := cluster.Eventually(ctx, time.Minute, func(ctx context.Context) error {
		_, err := third.Run(ctx, "curl -ksf https://127.0.0.1:6443/readyz")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	out, err = c.Clusterctl(ctx, "apply", "-auto-approve").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	order := regexp.MustCompile(`machine\.c\["(\d)"\] +(~ etcd.service|done)`).FindAllStringSubmatch(string(out), -1)
	var got []string
	for _, m := range order {
		got = append(got, m[1])
	}
	if len(got) != 6 || got[0] != got[1] || got[2] != got[3] || got[4] != got[5] || slices.Contains(got[2:], got[0]) {
		t.Errorf("changes %v are not one by one:\n%s", got, out)
	}
	plan, err := c.Clusterctl(ctx, "plan", "-detailed-exitcode").CombinedOutput()
	if err != nil {
		t.Errorf("not as declared afterwards: %v\n%s", err, plan)
	}
}
