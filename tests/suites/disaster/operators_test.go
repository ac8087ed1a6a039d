package disaster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"clusterctl/tests/lab/cluster"
)

const smallNode = `
machine "n1" {
  name    = "n1"
  address = "10.99.0.21"
  roles   = ["node"]
  kubelet { max_pods = 42 }
  ssh { user = "root" }
}
`

const smallControl = `cluster "home" {}

machine "c1" {
  name    = "c1"
  address = "10.99.0.11"
  roles   = ["control-plane"]
  ssh { user = "root" }
}
`

// testOperatorKilled kills the operator's process again and again when it reports a step, while it creates a cluster,
// changes a node, and destroys the cluster. Each operation completes after enough attempts, without any other measure.
func testOperatorKilled(ctx context.Context, t *testing.T) {
	c := startMachines(ctx, t, "killed", machinesOf("c1", "n1"), declareMachines([]string{"c1"}, []string{"n1"}))
	t.Logf("the cluster was made, killed %d times", killedUntilDone(ctx, t, c, "apply"))
	writeKubeconfig(ctx, t, c)
	checkDeclared(ctx, t, c)
	startSleeper(ctx, t, c, "before")
	if err := c.Write("cluster.hcl", smallControl+smallNode); err != nil {
		t.Fatal(err)
	}
	t.Logf("the node was changed, killed %d times", killedUntilDone(ctx, t, c, "apply"))
	checkDeclared(ctx, t, c)
	startSleeper(ctx, t, c, "after")
	t.Logf("everything was taken away, killed %d times", killedUntilDone(ctx, t, c, "destroy"))
	for _, m := range c.Lab.Machines {
		// The lab mounts the folders of etcd and containerd, and the machines' own interface is host0.
		left, err := m.Run(ctx, "ls -d /etc/kubernetes /var/lib/kubelet /etc/systemd/system/kube* 2>/dev/null; ls -A "+
			"/var/lib/etcd /var/lib/containerd | grep -v '^/\\|^$'; ip -br link show type veth | grep -v ^host0@; nft "+
			"list ruleset; true")
		if err != nil || strings.TrimSpace(left) != "" {
			t.Errorf("on %s is left: %s %v", m.Name, left, err)
		}
	}
}

// maxKills is the maximum number of times an operation is killed. It is larger than the number of reported steps.
const maxKills = 200

// killedUntilDone runs a verb and kills it at the first step that it reports, then at the second, and so on, until it
// completes before that.
func killedUntilDone(ctx context.Context, t *testing.T, c *cluster.Cluster, verb ...string) (killed int) {
	t.Helper()
	for range maxKills {
		cmd := c.Clusterctl(ctx, append(verb, "-auto-approve", "-json")...)
		var output strings.Builder
		cmd.Stderr = &output
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 16<<20)
		for deeds := 0; lines.Scan(); {
			output.WriteString(lines.Text() + "\n")
			var e struct{ Kind string }
			if json.Unmarshal(lines.Bytes(), &e) != nil ||
				!slices.Contains([]string{"begin", "send", "step", "object", "done"}, e.Kind) {
				continue
			}
			if deeds++; deeds > killed {
				_ = cmd.Process.Signal(syscall.SIGKILL) // it may have ended by itself
				break
			}
		}
		_, _ = io.Copy(io.Discard, out)
		err = cmd.Wait()
		var exit *exec.ExitError
		switch {
		case err == nil:
			return killed
		case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
			killed++
		default:
			t.Fatalf("clusterctl %s, killed %d times: %v\n%s", strings.Join(verb, " "), killed, err, output.String())
		}
	}
	t.Fatalf("clusterctl %s was killed %d times and has not come to its end", strings.Join(verb, " "), killed)
	return killed
}

// writeKubeconfig writes the administrator's kubeconfig.
func writeKubeconfig(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	t.Helper()
	text, err := cluster.Output(c.Clusterctl(ctx, "kubeconfig"))
	if err == nil {
		err = os.WriteFile(c.Kubeconfig(), []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// testTwoOperators tests two users with the same configuration, first in one folder, then in separate folders.
func testTwoOperators(ctx context.Context, t *testing.T) {
	c := startMachines(ctx, t, "two", machinesOf("c1", "n1"), smallControl+smallNode)
	if err := c.Apply(ctx, t.Output()); err != nil {
		t.Fatal(err)
	}
	pods := func(n string) string { return smallControl + strings.ReplaceAll(smallNode, "42", n) }

	// In one folder, the second operator gets an error that names the first, or waits.
	first, answer := startApply(ctx, t, c, pods("50"))
	mustRefuse(ctx, t, c, "another run is under way", "apply", "-auto-approve")
	waits := c.Clusterctl(ctx, "apply", "-auto-approve", "-lock-timeout", "3m")
	out, err := waits.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	waits.Stderr = waits.Stdout
	if err := waits.Start(); err != nil {
		t.Fatal(err)
	}
	answer("yes\n")
	if err := first.Wait(); err != nil {
		t.Errorf("the first: %v", err)
	}
	output, _ := io.ReadAll(out)
	if err := waits.Wait(); err != nil {
		t.Errorf("who waited: %v\n%s", err, output)
	}
	checkDeclared(ctx, t, c)

	// In separate folders, an operator learns of the other only from a machine.
	other := *c
	other.Folder = filepath.Join(c.Lab.Home(), "copy")
	if err := os.CopyFS(other.Folder, os.DirFS(c.Folder)); err != nil {
		t.Fatal(err)
	}
	first, answer = startApply(ctx, t, c, pods("60"))
	if err := other.Write("cluster.hcl", pods("70")); err != nil {
		t.Fatal(err)
	}
	clusterctl(ctx, t, &other, "apply", "-auto-approve")
	answer("yes\n")
	if err := first.Wait(); err == nil {
		t.Error("the first has changed what the second had changed since")
	}
	if output := first.Stdout.(*outputBuffer).String(); !strings.Contains(output,
		"has changed this machine since this one looked at it") ||
		!strings.Contains(output, "another run, of ") {
		t.Errorf("the first operator gets:\n%s", output)
	}
	if got := readMaxPods(ctx, t, c); got != "70" {
		t.Errorf("the node takes %s pods, not what the second declared", got)
	}
	clusterctl(ctx, t, c, "apply", "-auto-approve") // after another plan it is intended
	if got := readMaxPods(ctx, t, c); got != "60" {
		t.Errorf("the node takes %s pods, not what the first declared", got)
	}

	// Both apply at the same time, again and again. The result is the complete configuration of one of them.
	for i := range 3 {
		var wait sync.WaitGroup
		for j, one := range []*cluster.Cluster{c, &other} {
			if err := one.Write("cluster.hcl", pods([]string{"8", "9"}[j]+string(rune('0'+i)))); err != nil {
				t.Fatal(err)
			}
			wait.Go(func() {
				if out, err := one.Clusterctl(ctx, "apply", "-auto-approve").CombinedOutput(); err != nil &&
					!strings.Contains(string(out), "another run, of ") {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
		wait.Wait()
	}
	clusterctl(ctx, t, c, "apply", "-auto-approve")
	checkDeclared(ctx, t, c)
	startSleeper(ctx, t, c, "after")
}

func readMaxPods(ctx context.Context, t *testing.T, c *cluster.Cluster) (n string) {
	t.Helper()
	if err := cluster.Eventually(ctx, 30*time.Second, func(ctx context.Context) (err error) {
		n, err = cluster.Output(c.KubectlCommand(ctx, "get", "node", "n1", "-o", "jsonpath={.status.capacity.pods}"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// outputBuffer collects the output of a program, so that a test can wait for a word in it.
type outputBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *outputBuffer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *outputBuffer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// openTerminal opens a pseudoterminal: what is written to out can be read from in.
func openTerminal(t *testing.T) (in, out *os.File) {
	t.Helper()
	out, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	if err := unix.IoctlSetPointerInt(int(out.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(out.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if in, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	return in, out
}

// startApply starts an apply of a configuration, and returns when it asks for confirmation.
func startApply(
	ctx context.Context,
	t *testing.T,
	c *cluster.Cluster,
	declared string,
) (cmd *exec.Cmd, answer func(string)) {
	t.Helper()
	if err := c.Write("cluster.hcl", declared); err != nil {
		t.Fatal(err)
	}
	in, out := openTerminal(t)
	output := &outputBuffer{}
	cmd = c.Clusterctl(ctx, "apply")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, output, output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Eventually(ctx, time.Minute, func(context.Context) error {
		if !strings.Contains(output.String(), "Only 'yes' is taken") {
			return errors.New("it does not ask:\n" + output.String())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return cmd, func(text string) {
		if _, err := out.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
}

// testAnotherCluster tests a configuration that names a machine of another cluster by mistake.
func testAnotherCluster(ctx context.Context, t *testing.T) {
	c := startMachines(ctx, t, "another", machinesOf("c1", "n1", "c2"), smallControl+smallNode)
	if err := c.Apply(ctx, t.Output()); err != nil {
		t.Fatal(err)
	}
	startSleeper(ctx, t, c, "before")
	const showInvocations = "systemctl show -p InvocationID etcd kube-apiserver kubelet containerd kube-proxy; find " +
		"/etc/kubernetes -type f -exec sha256sum {} + | sort"
	before := map[string]string{}
	look := func(name string) string {
		text, err := c.Lab.Machine(name).Run(ctx, showInvocations)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for _, name := range []string{"c1", "n1"} {
		before[name] = look(name)
	}
	second := *c
	second.Folder = filepath.Join(c.Lab.Home(), "second")
	own := strings.NewReplacer(`"home"`, `"second"`, `"c1"`, `"c2"`, "10.99.0.11", "10.99.0.12").Replace(smallControl)
	for text, message := range map[string]string{
		own + smallNode: "it serves a cluster, and there is no state of one",
		strings.Replace(smallControl, `"home"`, `"second"`, 1): "etcd member",
	} {
		if err := second.Write("cluster.hcl", text); err != nil {
			t.Fatal(err)
		}
		mustRefuse(ctx, t, &second, message, "apply", "-auto-approve")
	}
	// A second cluster is created without the machine. Then the machine is added by mistake and removed again. Nothing
	// of it is cleaned.
	if err := second.Write("cluster.hcl", own); err != nil {
		t.Fatal(err)
	}
	clusterctl(ctx, t, &second, "apply", "-auto-approve")
	if err := second.Write("cluster.hcl", own+smallNode); err != nil {
		t.Fatal(err)
	}
	mustRefuse(ctx, t, &second, "it serves another cluster", "apply", "-auto-approve")
	if err := second.Write("cluster.hcl", own); err != nil {
		t.Fatal(err)
	}
	clusterctl(ctx, t, &second, "apply", "-auto-approve")
	clusterctl(ctx, t, &second, "destroy", "-auto-approve")
	for name, old := range before {
		if now := look(name); now != old {
			t.Errorf("%s was touched:\n%s\nthen\n%s", name, old, now)
		}
	}
	if phase := kubectl(ctx, t, c, "get", "pod", "before", "-o", "jsonpath={.status.phase} "+
		"{.status.containerStatuses[0].restartCount}"); phase != "Running 0" {
		t.Errorf("the pod is %s", phase)
	}
	checkDeclared(ctx, t, c)
}
