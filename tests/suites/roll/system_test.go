package roll

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"clusterctl/tests/lab/cluster"
)

const systemsConfig = `cluster "systems" {
  system {
    %s
  }
}

machine "c1" {
  name    = "c1"
  address = "10.99.0.11"
  roles   = ["control-plane"]
  ssh { user = "root" }
}

machine "node" {
  for_each = { n1 = "10.99.0.21", n2 = "10.99.0.22" }
  name     = each.key
  address  = each.value
  roles    = ["node"]
  ssh { user = "root" }
}
`

// archiveScript creates a machine's only package archive, with two versions of one package. The second requires a
// reboot. The archive offers the first.
const archiveScript = `set -e
mkdir -p /srv/repo && cd /srv/repo
for v in 1.0 1.1; do
  mkdir -p p$v/DEBIAN
  printf 'Package: lab-hello\nVersion: %s\nArchitecture: all\nMaintainer: lab <lab@example.com>\nDescription: hello\n' $v >p$v/DEBIAN/control
  if [ $v = 1.1 ]; then
    printf '#!/bin/sh\necho restart >/run/reboot-required\necho lab-hello >>/run/reboot-required.pkgs\n' >p$v/DEBIAN/postinst
    chmod 755 p$v/DEBIAN/postinst
  fi
  dpkg-deb --root-owner-group -b p$v lab-hello_$v.deb >/dev/null
  { dpkg-deb -f lab-hello_$v.deb; echo "Filename: ./lab-hello_$v.deb"; echo "Size: $(stat -c %s lab-hello_$v.deb)"; echo "SHA256: $(sha256sum lab-hello_$v.deb | cut -d' ' -f1)"; echo; } >Packages.$v
done
cp Packages.1.0 Packages
rm -rf /etc/apt/sources.list.d/* && echo 'deb [trusted=yes] file:/srv/repo ./' >/etc/apt/sources.list
apt-get -q update >/dev/null && touch /var/lib/apt/lists`

// A package is installed and upgraded when the archive has a newer version. The machines that require a reboot after it
// are rebooted, one after the other.
// Proves P03.
func TestSystemsAreUpgradedAndRebooted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c, err := cluster.New(ctx, cluster.Options{Name: fmt.Sprintf("systems-%d", os.Getpid()), Log: os.Stderr,
		Machines: []string{
			"c1=10.99.0.11",
			"n1=10.99.0.21",
			"n2=10.99.0.22",
		}, Files: map[string]string{"cluster.hcl": fmt.Sprintf(systemsConfig, `packages = ["lab-hello"]`)},
		HasPrograms: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(context.Background()); err != nil {
			t.Errorf("take the lab down: %v", err)
		}
	})
	everywhere := func(script string) map[string]string { t.Helper(); return runEverywhere(ctx, t, c, script) }
	has := func(version string) {
		t.Helper()
		for name, got := range everywhere("dpkg-query -W -f='${Version}' lab-hello") {
			if got != version {
				t.Errorf("%s has version %s, not %s", name, got, version)
			}
		}
	}
	everywhere(archiveScript)
	if err := c.Apply(ctx, os.Stderr); err != nil {
		t.Fatal(err)
	}
	has("1.0")
	if out, err := c.KubectlCommand(ctx, "create", "deployment", "rest", "--image=clusterctl.local/pause:1",
		"--replicas=2").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	available := func() {
		t.Helper()
		if out, err := c.KubectlCommand(ctx, "wait", "--for=condition=Available", "deployment/rest",
			"--timeout=90s").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	available()

	everywhere("cd /srv/repo && cat Packages.1.0 Packages.1.1 >Packages && apt-get -q update >/dev/null && touch " +
		"/var/lib/apt/lists")
	// While the window is closed nothing is changed.
	tomorrow := time.Now().UTC().AddDate(0, 0, 1).Format("Mon")
	write := func(system string) {
		if err := c.Write("cluster.hcl", fmt.Sprintf(systemsConfig, "packages = [\"lab-hello\"]\n    upgrade  = "+
			"\"all\"\n  "+
			"  reboot   = \"when-required\"\n"+system)); err != nil {
			t.Fatal(err)
		}
	}
	write(fmt.Sprintf("    window {\n      days = [%q]\n      from = \"12:00\"\n      to   = \"12:01\"\n    }\n",
		strings.ToLower(tomorrow)))
	out, err := c.Clusterctl(ctx, "plan", "-detailed-exitcode").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "their window opens "+tomorrow) {
		t.Errorf("with a closed window: %v\n%s", err, out)
	}
	write("")
	boots := everywhere("systemctl show -p UserspaceTimestampMonotonic --value")
	out = applyWithReboots(ctx, t, c)
	for _, want := range []string{"lab-hello: 1.0 → 1.1", "drain, since its packages are " +
		"upgraded", "is back", "takes pods again"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	has("1.1")
	for name, now := range everywhere("systemctl show -p UserspaceTimestampMonotonic --value") {
		if now == boots[name] {
			t.Errorf("%s was not rebooted", name)
		}
	}
	available()
	checkIdle(ctx, t, c)
}

// checkIdle checks that all nodes take pods, and that nothing is left to do.
func checkIdle(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	if out, err := c.KubectlCommand(ctx, "get", "nodes", "--no-headers").CombinedOutput(); err != nil ||
		strings.Contains(string(out), "NotReady") ||
		strings.Contains(string(out), "SchedulingDisabled") {
		t.Errorf("nodes are %s %v", out, err)
	}
	if out, err := c.Clusterctl(ctx, "plan", "-detailed-exitcode").CombinedOutput(); err != nil {
		t.Errorf("something is left to do: %v\n%s", err, out)
	}
}

// applyWithReboots applies, and checks that each machine is rebooted once. It returns the output.
func applyWithReboots(ctx context.Context, t *testing.T, c *cluster.Cluster) []byte {
	var stops []func() (int, error)
	for _, m := range c.Lab.Machines {
		stops = append(stops, m.RebootOnExit(ctx))
	}
	out, err := c.Clusterctl(ctx, "apply", "-auto-approve").CombinedOutput()
	for i, stop := range stops {
		if n, err := stop(); n != 1 || err != nil {
			t.Errorf("%s was booted %d times: %v", c.Lab.Machines[i].Name, n, err)
		}
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return out
}

// runEverywhere runs a script on all machines and returns their output.
func runEverywhere(ctx context.Context, t *testing.T, c *cluster.Cluster, script string) (outputs map[string]string) {
	outputs = map[string]string{}
	for _, m := range c.Lab.Machines {
		text, err := m.Run(ctx, script)
		if err != nil {
			t.Fatalf("%s: %v", m.Name, err)
		}
		outputs[m.Name] = strings.TrimSpace(text)
	}
	return outputs
}
