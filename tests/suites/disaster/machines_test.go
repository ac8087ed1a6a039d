package disaster

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clusterctl/tests/lab/cluster"
)

// declareMachines returns a configuration with control-plane machines cN at 10.99.0.1N and nodes nN at 10.99.0.2N.
func declareMachines(control, nodes []string) string {
	text := "cluster \"home\" {}\n"
	for _, m := range append(slices.Clone(control), nodes...) {
		address, role := "10.99.0.1"+m[1:], "control-plane"
		if m[0] == 'n' {
			address, role = "10.99.0.2"+m[1:], "node"
		}
		text += fmt.Sprintf("\nmachine %q {\n  name    = %q\n  address = %q\n  roles   = [%q]\n  ssh { "+
			"user = \"root\" }\n}\n", m, m, address, role)
	}
	return text
}

func machinesOf(names ...string) (list []string) {
	for _, m := range names {
		address := "10.99.0.1" + m[1:]
		if m[0] == 'n' {
			address = "10.99.0.2" + m[1:]
		}
		list = append(list, m+"="+address)
	}
	return list
}

func startSleeper(ctx context.Context, t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	kubectl(ctx, t, c, "run", name, "--image=clusterctl.local/pause:1", "--image-pull-policy=IfNotPresent")
	kubectl(ctx, t, c, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=90s")
}

func kubectl(ctx context.Context, t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	out, err := c.KubectlCommand(ctx, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// testRuntimeLost tests a node on which a user has deleted runc and the network plugins.
func testRuntimeLost(ctx context.Context, t *testing.T) {
	c := startMachines(ctx, t, "runc", machinesOf("c1", "n1"), declareMachines([]string{"c1"}, []string{"n1"}))
	if err := c.Apply(ctx, t.Output()); err != nil {
		t.Fatal(err)
	}
	startSleeper(ctx, t, c, "before")
	n1 := c.Lab.Machine("n1")
	runs := func() string {
		text, err := n1.Run(ctx, "systemctl show -p InvocationID --value containerd kubelet")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	before := runs()
	if _, err := n1.Run(ctx, `rm -f "$(readlink -f /usr/local/bin/runc)" /usr/local/bin/runc /opt/cni/bin/*`); err != nil {
		t.Fatal(err)
	}
	if output := clusterctl(ctx, t, c, "apply", "-auto-approve"); strings.Contains(output, "draining") {
		t.Errorf("the node was drained for that:\n%s", output)
	}
	if now := runs(); now != before {
		t.Errorf("units were restarted: %q, then %q", before, now)
	}
	startSleeper(ctx, t, c, "after")
	if phase := kubectl(ctx, t, c, "get", "pod", "before", "-o", "jsonpath={.status.phase} "+
		"{.status.containerStatuses[0].restartCount}"); phase != "Running 0" {
		t.Errorf("the pod from before is %s", phase)
	}
	checkDeclared(ctx, t, c)
}

// testRevokedReturns tests a control-plane machine that failed, was removed, so that its certificates were revoked, and
// returns with all its data.
func testRevokedReturns(ctx context.Context, t *testing.T) {
	c := startMachines(ctx, t, "returns", machinesOf("c1", "c2", "c3", "n1"),
		declareMachines([]string{"c1", "c2", "c3"}, []string{"n1"}))
	if err := c.Apply(ctx, t.Output()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"c3", "n1"} {
		if err := c.Lab.Machine(name).PowerCut(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Write("cluster.hcl", declareMachines([]string{"c1", "c2"}, nil)); err != nil {
		t.Fatal(err)
	}
	clusterctl(ctx, t, c, "apply", "-auto-approve")
	if nodes := kubectl(ctx, t, c, "get", "nodes", "-o", "name"); strings.Contains(nodes, "n1") {
		t.Errorf("the dead node is still there: %s", nodes)
	}
	for _, name := range []string{"c3", "n1"} {
		if err := c.Lab.Machine(name).Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Write("cluster.hcl", declareMachines([]string{"c1", "c2", "c3"}, []string{"n1"})); err != nil {
		t.Fatal(err)
	}
	clusterctl(ctx, t, c, "apply", "-auto-approve")
	checkDeclared(ctx, t, c)
	startSleeper(ctx, t, c, "after")
	checkMembers(ctx, t, c, 3)
}

// checkMembers checks that etcd has the given number of members, and no learners.
func checkMembers(ctx context.Context, t *testing.T, c *cluster.Cluster, want int) {
	t.Helper()
	dir := t.TempDir()
	args := []string{"--endpoints", "https://10.99.0.11:2379", "member", "list", "-w", "simple"}
	for flag, file := range map[string]string{"--cacert": "etcd/ca.crt", "--cert": "apiserver-etcd-client.crt",
		"--key": "apiserver-etcd-client.key"} {
		text, err := c.Lab.Machine("c1").Run(ctx, "cat /etc/kubernetes/pki/"+file)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, flag, path)
	}
	text, err := cluster.Output(c.Lab.Command(ctx, filepath.Join(c.Bundle, "etcdctl"), args...))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(text, "started"); got != want || strings.Contains(text, "unstarted") ||
		strings.Contains(text, ", true") {
		t.Errorf("the store has %d members, want %d:\n%s", got, want, text)
	}
}

// testDiskFull tests a control-plane machine whose disk is full.
func testDiskFull(ctx context.Context, t *testing.T) {
	c := startMachines(ctx, t, "full", machinesOf("c1", "c2", "c3"), declareMachines([]string{"c1", "c2", "c3"}, nil))
	if err := c.Apply(ctx, t.Output()); err != nil {
		t.Fatal(err)
	}
	full := c.Lab.Machine("c3")
	if err := full.Fill(); err != nil {
		t.Fatal(err)
	}
	died := false
	for i := range 200 { // the full member cannot store these
		if err := cluster.Eventually(ctx, 30*time.Second, func(ctx context.Context) error {
			// it takes seconds to elect a leader
			out, err := c.KubectlCommand(ctx, "create", "configmap", fmt.Sprintf("fill-%d", i), "--from-literal=a="+
				strings.Repeat("x", 100_000)).CombinedOutput()
			if err != nil && !strings.Contains(string(out), "already exists") { // it was stored, but not acknowledged
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}); err != nil {
			t.Fatalf("the others do not serve: %v", err)
		}
		if text, err := full.Run(ctx, "systemctl show -p NRestarts --value etcd"); err == nil &&
			strings.TrimSpace(text) != "0" {
			died = true
			break
		}
	}
	t.Logf("its member has ended for want of room: %t", died)
	if err := full.Free(); err != nil {
		t.Fatal(err)
	}
	clusterctl(ctx, t, c, "apply", "-auto-approve")
	checkDeclared(ctx, t, c)
	checkMembers(ctx, t, c, 3)
	if _, err := full.Run(ctx, "curl -ksf https://127.0.0.1:6443/readyz"); err != nil {
		t.Errorf("its own API server: %v", err)
	}
}

// testResize tests a control plane that grows from one machine to five and shrinks again, while clients write. No
// acknowledged write is lost. c1 stays.
func testResize(ctx context.Context, t *testing.T) {
	for name, order := range map[string][]string{"ascending": {"c2", "c3", "c4", "c5"},
		"mixed": {"c5", "c3", "c2", "c4"}} {
		t.Run(name, func(t *testing.T) {
			c := startMachines(ctx, t, "resized-"+name, machinesOf("c1", "c2", "c3", "c4", "c5"),
				declareMachines([]string{"c1"}, nil))
			if err := c.Apply(ctx, t.Output()); err != nil {
				t.Fatal(err)
			}
			l := &createLoad{c: c, acknowledged: map[string]bool{}}
			stop := l.start(ctx)
			for _, size := range []int{2, 3, 4, 5, 3, 1} {
				control := append([]string{"c1"}, order[:size-1]...)
				slices.Sort(control)
				if err := c.Write("cluster.hcl", declareMachines(control, nil)); err != nil {
					t.Fatal(err)
				}
				clusterctl(ctx, t, c, "apply", "-auto-approve")
				l.checkDuring(t, size)
			}
			stop()
			checkDeclared(ctx, t, c)
			checkMembers(ctx, t, c, 1)
			there := strings.Fields(kubectl(ctx, t, c, "get", "configmaps", "-o", "name"))
			for _, name := range slices.Sorted(maps.Keys(l.acknowledged)) {
				if !slices.Contains(there, "configmap/"+name) {
					t.Errorf("%s was acknowledged, and is lost", name)
				}
			}
			t.Logf("%d writes were acknowledged, %d were not", len(l.acknowledged), l.failed)
		})
	}
}

// createLoad is a client that creates objects, one after the other, on the machine that stays.
type createLoad struct {
	c            *cluster.Cluster
	mu           sync.Mutex
	acknowledged map[string]bool // acknowledged objects
	failed       int
	last         int
}

func (l *createLoad) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			name := fmt.Sprintf("load-%d", i)
			err := l.c.KubectlCommand(ctx, "create", "configmap", name, "--request-timeout=5s").Run()
			l.mu.Lock()
			if err == nil {
				l.acknowledged[name] = true
			} else {
				l.failed++
			}
			l.mu.Unlock()
		}
	})
	return func() { cancel(); done.Wait() }
}

// checkDuring checks that a write was acknowledged since the last call.
func (l *createLoad) checkDuring(t *testing.T, size int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.acknowledged) == l.last {
		t.Errorf("on the way to %d machines nothing could be written", size)
	}
	l.last = len(l.acknowledged)
}
