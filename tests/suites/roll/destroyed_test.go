package roll

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"clusterctl/tests/lab/cluster"
)

// traceCommands are commands that show what a cluster could leave on a machine: routes, links, rules, kernel settings,
// units, cgroups and files. They leave out what changes by itself and what the machine writes while it runs.
var traceCommands = []string{
	"ip route show table all | sed 's/ expires [^ ]*//' | sort",
	"ip -o link | sed 's/^[0-9]*: //; s/@.*//; s/:.*//' | sort",
	"nft list ruleset 2>/dev/null || true",
	"sysctl -a 2>/dev/null | grep -E " +
		"'^(net.ipv4.ip_forward|net.ipv4.conf.(all|default)|net.ipv6.conf.(all|default)|net.bridge|" +
		"vm.overcommit_memory|kernel.panic|kernel.keys)' | sort",
	"systemctl list-unit-files --no-legend --no-pager | awk '{print $1, $2}' | grep -v ^session- | sort",
	"systemctl list-units --all --state=failed --no-legend --plain | awk '{print $1}' | sort",
	"ls -d /sys/fs/cgroup/kubepods /sys/fs/cgroup/*/kubepods 2>/dev/null || true",
	"cat /proc/mounts | awk '{print $2}' | grep -E 'kube|containerd|netns|cni' | sort",
	"find /etc /opt /usr/local /var/lib /run /var/log /root -xdev -not -path '/run/systemd/*' -not -path " +
		"'/run/udev/*' -not -path '/run/log/*' -not -path '/var/log/journal*' -not -path '/run/user*' -not -path " +
		"'/var/lib/systemd/*' -not -path '/run/sshd*' -not -path '/run/motd.dynamic' -not -path '/etc/.updated' | sort",
}

func readTraces(ctx context.Context, t *testing.T, c *cluster.Cluster) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, m := range c.Lab.Machines {
		// An IPv6 address gets its route a second after it was added, when duplicate address detection has completed.
		if err := cluster.Eventually(ctx, 20*time.Second, func(ctx context.Context) error {
			if out, err := m.Run(ctx, "ip -6 -o addr show tentative"); err != nil || strings.TrimSpace(out) != "" {
				return fmt.Errorf("%s still asks for its addresses: %s (%v)", m.Name, out, err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, look := range traceCommands {
			text, err := m.Run(ctx, look)
			if err != nil {
				t.Fatal(err)
			}
			found[m.Name+": "+look] = strings.Split(strings.TrimSpace(text), "\n")
		}
	}
	return found
}

// After destroy a machine is as it was before apply: routes, links, tables, kernel settings, units, cgroups and files.
// Proves P07.
func TestDestroyLeavesTheMachineAsItWas(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), applyTimeout)
	defer cancel()
	c, err := cluster.New(ctx, cluster.Options{Name: fmt.Sprintf("destroyed-%d", os.Getpid()), Log: os.Stderr,
		Machines: []string{
			"c1=10.99.0.11",
			"n1=10.99.0.21",
		}, Files: map[string]string{"cluster.hcl": `cluster "destroyed" {}

machine "c1" {
  address = "10.99.0.11"
  roles   = ["control-plane", "node"]
  ssh { user = "root" }
}

machine "n1" {
  address = "10.99.0.21"
  roles   = ["node"]
  ssh { user = "root" }
}
`}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(context.Background()); err != nil {
			t.Errorf("take the lab down: %v", err)
		}
	})
	before := readTraces(ctx, t, c)
	if err := c.Apply(ctx, os.Stderr); err != nil {
		t.Fatal(err)
	}
	// A pod with a host port causes all changes that pods make on a machine.
	if out, err := c.KubectlCommand(ctx, "run", "sleeper", "--image=clusterctl.local/pause:1",
		"--image-pull-policy=IfNotPresent",
		"--overrides",
		`{"spec":{"containers":[{"name":"sleeper","image":"clusterctl.local/pause:1","ports":[{"containerPort":80,"hostPort":8080}]}]}}`).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := c.KubectlCommand(ctx, "wait", "--for=condition=Ready", "pod/sleeper",
		"--timeout=60s").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if during := readTraces(ctx, t, c); slices.Equal(during["n1: "+traceCommands[0]], before["n1: "+traceCommands[0]]) {
		t.Error("the cluster has made no route: the test sees nothing")
	}
	if out, err := c.Clusterctl(ctx, "destroy", "-auto-approve").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	after := readTraces(ctx, t, c)
	for look, lines := range before {
		for _, line := range after[look] {
			if !slices.Contains(lines, line) {
				t.Errorf("%s: left is %s", look, line)
			}
		}
		for _, line := range lines {
			if !slices.Contains(after[look], line) {
				t.Errorf("%s: missing is %s", look, line)
			}
		}
	}
}
