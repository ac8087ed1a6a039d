package roll

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/programs/webimage"
)

const hardenedConfig = `cluster "hardened" {}

machine "c" {
  for_each = { "1" = "root", "2" = "fisher", "3" = "cesar" }
  name     = "c${each.key}"
  address  = "10.99.0.1${each.key}"
  roles    = ["control-plane", "node"]
  ssh { user = each.value }
}

image "web" { archive = "images/web.tar" }

object "apps/v1" "DaemonSet" "web" {
  spec = {
    selector = { matchLabels = { app = "web" } }
    template = {
      metadata = { labels = { app = "web" } }
      spec = {
        containers = [{
          name           = "web"
          image          = image.web.reference
          ports          = [{ containerPort = 8080 }]
          readinessProbe = { httpGet = { path = "/healthz", port = 8080 }, periodSeconds = 2 }
        }]
      }
    }
  }
}

object "v1" "Service" "web" {
  spec = {
    selector = { app = "web" }
    ports    = [{ port = 80, targetPort = 8080 }]
  }
}
`

// hardenScript configures a machine in ways that have broken installations: a umask that denies access to other users,
// an unreachable proxy for all services, and one session per SSH connection. It also sets login shells other than the
// Bourne shell, and the packet rules that Docker leaves behind.
const hardenScript = `set -e
umask 022
for s in sshd sudo; do echo 'session optional pam_umask.so umask=0027' >>/etc/pam.d/$s; done
echo 'Defaults umask=0027, umask_override' >/etc/sudoers.d/umask
mkdir -p /etc/systemd/system.conf.d /etc/ssh/sshd_config.d
p=http://10.99.0.1:3128
printf '[Manager]\nDefaultEnvironment="HTTP_PROXY=%s" "HTTPS_PROXY=%s" "http_proxy=%s" "https_proxy=%s"\n' \
  $p $p $p $p >/etc/systemd/system.conf.d/proxy.conf
echo 'MaxSessions 1' >/etc/ssh/sshd_config.d/sessions.conf
for u in fisher:/usr/bin/fish cesar:/usr/bin/tcsh; do
  n=${u%:*}
  useradd -m -s ${u#*:} $n
  install -d -m 700 -o $n /home/$n/.ssh
  install -m 600 -o $n /home/admin/.ssh/authorized_keys /home/$n/.ssh/authorized_keys
  echo "$n ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/$n
done
for i in iptables ip6tables; do
  $i -P FORWARD DROP
  $i -N DOCKER-USER
  $i -A DOCKER-USER -j RETURN
  $i -A FORWARD -j DOCKER-USER
done
systemctl daemon-reexec
systemctl restart ssh
systemctl show-environment | grep -q HTTPS_PROXY`

// One apply creates a cluster of machines with a strict umask, a proxy for all services, Docker's packet rules,
// MaxSessions 1 and users with other shells. Afterwards plan and status report no problem, and pods reach each other.
// Proves P03.
func TestHardenedMachinesTakeOneApply(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c, err := cluster.New(ctx, cluster.Options{Name: fmt.Sprintf("hardened-%d", os.Getpid()), Log: os.Stderr,
		Machines: []string{"c1=10.99.0.11", "c2=10.99.0.12", "c3=10.99.0.13"},
		Files:    map[string]string{"cluster.hcl": hardenedConfig}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(context.Background()); err != nil {
			t.Errorf("take the lab down: %v", err)
		}
	})
	if err := webimage.Write(c.Bundle, filepath.Join(c.Folder, "images/web.tar")); err != nil {
		t.Fatal(err)
	}
	run := func(machine, line string) string {
		t.Helper()
		out, err := c.Lab.Machine(machine).Run(ctx, line)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	for _, m := range c.Lab.Machines {
		run(m.Name, hardenScript)
	}
	var out strings.Builder
	if err := c.Apply(ctx, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !strings.Contains(out.String(), "systemd gives every service a proxy") {
		t.Errorf("apply does not say that there is a proxy:\n%s", out.String())
	}
	for _, verb := range [][]string{{"plan", "-detailed-exitcode"}, {"status"}, {"etcd", "status"}} {
		if out, err := c.Clusterctl(ctx, verb...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", strings.Join(verb, " "), err, out)
		}
	}
	for _, m := range c.Lab.Machines {
		if failed := run(m.Name, "systemctl --failed --plain --no-legend | grep -E "+
			"'etcd|kube|containerd|metrics' || true"); failed != "" {
			t.Errorf("%s has failed units:\n%s", m.Name, failed)
		}
		if mode := run(m.Name, "stat -c %a /usr/local/lib/clusterctl"); mode != "755" {
			t.Errorf("%s: /usr/local/lib/clusterctl has mode %s", m.Name, mode)
		}
	}
	if out, err := c.KubectlCommand(ctx, "rollout", "status", "daemonset/web",
		"--timeout=90s").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	checkPodsReachEachOther(ctx, t, c)
}

// checkPodsReachEachOther checks that each of three pods reaches all of them and their Service.
func checkPodsReachEachOther(ctx context.Context, t *testing.T, c *cluster.Cluster) {
	addresses, err := c.KubectlCommand(ctx, "get", "pods", "-l", "app=web", "-o",
		"jsonpath={.items[*].status.podIP}").Output()
	if err != nil {
		t.Fatal(err)
	}
	pods := strings.Fields(string(addresses))
	if len(pods) != 3 {
		t.Fatalf("pods %q, want three", pods)
	}
	service, err := c.KubectlCommand(ctx, "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}").Output()
	if err != nil {
		t.Fatal(err)
	}
	names, err := c.KubectlCommand(ctx, "get", "pods", "-l", "app=web", "-o", "name").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range strings.Fields(string(names)) {
		for _, to := range append(pods[:len(pods):len(pods)], string(service)) {
			url := "http://" + to + ":8080/"
			if to == string(service) {
				url = "http://" + to + "/"
			}
			if out, err := c.KubectlCommand(ctx, "exec", pod, "--", "/bin/busybox", "wget", "-qO-",
				url).CombinedOutput(); err != nil {
				t.Errorf("%s does not reach %s: %v\n%s", pod, url, err, out)
			}
		}
	}
}
