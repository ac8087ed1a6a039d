package roll

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"clusterctl/tests/lab/cluster"
)

const updateLimit = 12 * time.Minute

const updatedConfiguration = `cluster "update" {
  roll { hold = "3s" }
}

machine "c" {
  for_each = { "1" = "10.99.0.11", "2" = "10.99.0.12", "3" = "10.99.0.13" }
  address  = each.value
  roles    = ["control-plane", "node"]
  ssh { user = "root" }
}
`

// Under load from outside, three control-plane machines are updated to another build, with an apply that is killed and
// one that completes. Then they get a build that does not start, and one that ends after its start. At the end they
// return to the first build by its name. A build that does not work is rolled back automatically on the one machine
// that got it, and clients do not notice.
func TestUpdatesUnderLoadRollBackBrokenBuilds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), updateLimit)
	defer cancel()
	c := startCluster(ctx, t, "update", updatedConfiguration)
	first := c.Bundle
	load := startLoad(ctx, t, newCredentials(ctx, t, c))
	defer load.finish()

	former := daemonPrograms(ctx, t, c)
	installRelease(t, c, first, "next")
	killApplyAt(ctx, t, c, `~ kube-apiserver\.service`)
	if plan, err := c.Clusterctl(ctx, "plan").CombinedOutput(); err != nil ||
		!strings.Contains(string(plan), "was interrupted") {
		t.Errorf("the plan does not say that an update was interrupted: %v\n%s", err, plan)
	}
	applyAndCheck(ctx, t, c, "update to another build")
	next := daemonPrograms(ctx, t, c)
	for at, program := range next {
		if program == former[at] {
			t.Errorf("%s still runs %s", at, program)
		}
	}

	for _, broken := range []struct{ name, message, daemon string }{
		{"broken", "panic: this release of kube-apiserver cannot start", "kube-apiserver"},
		{"dying", "panic: this release of kube-controller-manager cannot go on", "kube-controller-manager"},
	} {
		installRelease(t, c, first, broken.name)
		start := time.Now()
		out, err := c.Clusterctl(ctx, "apply", "-auto-approve").CombinedOutput()
		t.Logf("%s: rolled back %s after the beginning", broken.name, time.Since(start).Round(time.Second))
		if err == nil || !strings.Contains(string(out), broken.message) ||
			!strings.Contains(string(out), "was rolled back") {
			t.Fatalf("the release %s: %v\n%s", broken.name, err, out)
		}
		if now := daemonPrograms(ctx, t, c); !samePrograms(now, next) {
			t.Errorf("after %s there runs\n%v\nand not\n%v", broken.name, now, next)
		}
		touched := regexp.MustCompile(`machine\.c\["(\d)"\] +~ \S*`+broken.daemon).
			FindAllStringSubmatch(string(out), -1)
		for _, m := range touched {
			if m[1] != touched[0][1] {
				t.Errorf("%s was tried on more than one machine:\n%s", broken.name, out)
			}
		}
		out, err = c.Clusterctl(ctx, "plan").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "last time") || !strings.Contains(string(out), broken.message) {
			t.Errorf("the next plan does not say what failed: %v\n%s", err, out)
		}
	}

	c.Bundle = first
	out, err := c.Clusterctl(ctx, "plan").CombinedOutput()
	named := regexp.MustCompile(`-allow-downgrade (\S+)`).FindStringSubmatch(string(out))
	if err == nil || named == nil {
		t.Fatalf("to go back is not refused: %v\n%s", err, out)
	}
	applyAndCheck(ctx, t, c, "the way back", "-allow-downgrade", named[1])
	if now := daemonPrograms(ctx, t, c); !samePrograms(now, former) {
		t.Errorf("after the way back there runs\n%v\nand not\n%v", now, former)
	}
	load.finish()
}

func applyAndCheck(ctx context.Context, t *testing.T, c *cluster.Cluster, what string, flags ...string) {
	t.Helper()
	start := time.Now()
	out, err := c.Clusterctl(ctx, append([]string{"apply", "-auto-approve"}, flags...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", what, err, out)
	}
	t.Logf("%s: %s", what, time.Since(start).Round(100*time.Millisecond))
	if plan, err := c.Clusterctl(ctx,
		append([]string{"plan", "-detailed-exitcode"}, flags...)...).CombinedOutput(); err != nil {
		t.Errorf("%s: not as declared afterwards: %v\n%s", what, err, plan)
	}
}

// installRelease makes the cluster's clusterctl another build, with the rest of the bundle beside it.
func installRelease(t *testing.T, c *cluster.Cluster, from, name string) {
	t.Helper()
	dir := t.TempDir()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		source := filepath.Join(from, e.Name())
		switch e.Name() {
		case "clusterctl":
			source = filepath.Join(from, "releases", name, "clusterctl")
		case "releases":
			continue
		}
		if err := os.Symlink(source, filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	// The program finds its bundle in its own directory, wherever links to it are.
	program := filepath.Join(dir, "clusterctl")
	source, err := os.Readlink(program)
	if err == nil {
		err = os.Remove(program)
	}
	if err == nil {
		err = copyFile(source, program)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Bundle = dir
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755)
}

// daemonPrograms returns the programs of the daemons on all machines.
func daemonPrograms(ctx context.Context, t *testing.T, c *cluster.Cluster) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, m := range c.Lab.Machines {
		text, err := m.Run(
			ctx,
			`for u in etcd kube-apiserver kube-scheduler kube-controller-manager kubelet kube-proxy kube-network kube-dns metrics-server; do
			echo $u $(systemctl is-active $u) $(readlink /proc/$(systemctl show -p MainPID --value $u)/exe); done`,
		)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text) {
			fields := strings.Fields(line)
			if len(fields) != 3 || fields[1] != "active" {
				t.Errorf("%s: %s", m.Name, line)
				continue
			}
			if fields[0] != "etcd" {
				all[m.Name+" "+fields[0]] = fields[2]
			}
		}
	}
	if len(all) < 8*len(c.Lab.Machines) {
		t.Errorf("not everything runs: %v", all)
	}
	return all
}

func samePrograms(a, b map[string]string) bool { return maps.Equal(a, b) }
