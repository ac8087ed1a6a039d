// Package packets tests a cluster's network on real machines while its daemons are killed, stopped and started, and
// their rules are flushed. No connection ends, and no request fails, except requests that a killed daemon was handling.
package packets

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/programs/webimage"
)

var killCount = flag.Int("kills", 3, "how often each daemon is killed")

// clusterConfig is a control plane and two nodes. Clients connect from outside, from a machine, and from a pod.
const clusterConfig = `
cluster "packets" {
  pod_cidrs     = ["10.244.0.0/16"]
  service_cidrs = ["10.96.0.0/16"]
  ingress {}
  dns { node_local = true }
}

load_balancer "outside" {
  addresses = ["10.99.0.200-10.99.0.209"]
}

machine "control" {
  address = "10.99.0.11"
  roles   = ["control-plane"]
  ssh { user = "root" }
}

machine "node" {
  for_each = { a = "10.99.0.21", b = "10.99.0.22" }
  address  = each.value
  roles    = ["node"]
  ssh { user = "root" }
}
`

const workloadManifest = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: "@IMAGE@"
        imagePullPolicy: IfNotPresent
        ports: [{name: http, containerPort: 8080}, {name: echo, containerPort: 7000}]
        readinessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 2, timeoutSeconds: 5}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: http}, {name: echo, port: 7000, targetPort: echo}]}
---
apiVersion: v1
kind: Service
metadata: {name: outside}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{name: http, port: 80, targetPort: http, nodePort: 30081}, {name: echo, port: 7000, targetPort: echo}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec: {rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}}]}}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec: {podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: http}, {port: echo}]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  nodeName: node-a
  containers: [{name: c, image: "@IMAGE@", imagePullPolicy: IfNotPresent, command: [sleep, "36000"]}]
`

// client is a program that makes requests, or keeps a connection open, and prints failures.
type client struct {
	name            string
	node            string // the node whose daemons handle its packets; its requests end if a proxy is killed there
	keepsConnection bool
	out             bytes.Buffer
	stop            func()
}

type failureReport struct {
	At    time.Time `json:"at"`
	Took  float64   `json:"took"`
	Error string    `json:"error"`
	Made  int       `json:"made"`
}

// read returns the failures, and the number of requests.
func (c *client) read() (failures []failureReport, made int) {
	lines := bufio.NewScanner(bytes.NewReader(c.out.Bytes()))
	for lines.Scan() {
		var f failureReport
		if json.Unmarshal(lines.Bytes(), &f) != nil {
			continue
		}
		if f.Error != "" {
			failures = append(failures, f)
		}
		made = max(made, f.Made)
	}
	return failures, made
}

// excusedWindow is a time in which some requests may fail.
type excusedWindow struct {
	from, to          time.Time
	reason            string
	node              string // of the clients; empty: all
	coversConnections bool   // connections that are kept open may end, too
}

func (e excusedWindow) covers(c *client, f failureReport) bool {
	end := f.At.Add(time.Duration(f.Took * float64(time.Second)))
	if e.node != "" && e.node != c.node || c.keepsConnection && !e.coversConnections {
		return false
	}
	return !end.Before(e.from) && !f.At.After(e.to)
}

// Proves S22, S28, S31, S32.
func TestConnectionsSurviveKilledDaemons(t *testing.T) {
	ctx := t.Context()
	c := startCluster(t)
	image, err := cluster.Output(c.KubectlCommand(ctx, "get", "deployment", "-n", "shop", "web", "-o",
		"jsonpath={.spec.template.spec.containers[0].image}"))
	if err != nil {
		t.Fatal(err)
	}
	apply := c.KubectlCommand(ctx, "apply", "-f", "-")
	apply.Stdin = strings.NewReader(strings.ReplaceAll(workloadManifest, "@IMAGE@", image))
	for _, cmd := range [][]string{{"rollout", "status", "daemonset/web", "--timeout=60s"},
		{"wait", "--for=condition=Ready", "pod/client", "--timeout=60s"}} {
		if len(cmd) > 0 && cmd[0] == "rollout" {
			if _, err := cluster.Output(apply); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := cluster.Output(c.KubectlCommand(ctx, cmd...)); err != nil {
			t.Fatal(err)
		}
	}
	service, balanced := serviceAddress(t, c, "web", "{.spec.clusterIP}"), serviceAddress(t, c, "outside",
		"{.status.loadBalancer.ingress[0].ip}")
	clients := startClients(t, c, service, balanced)
	var excuses []excusedWindow
	start := time.Now()
	for round := range *killCount {
		for _, unit := range []string{"kube-proxy", "kube-network", "kube-dns", "kube-ingress"} {
			node := []string{"a", "b"}[round%2]
			from, to := killUnit(t, c, node, unit)
			if unit == "kube-ingress" {
				excuses = append(excuses, excusedWindow{from: from, to: to, node: node, reason: unit + " killed"})
			}
			awaitReady(t, c, node, unit)
		}
	}
	for _, unit := range []string{"kube-proxy", "kube-network", "kube-dns", "kube-ingress"} {
		mustRunOn(t, c, "a", "systemctl restart "+unit)
		awaitReady(t, c, "a", unit)
	}
	// First only the rules are flushed, then the tables too. Without tables no addresses are translated, which ends
	// requests under way.
	for _, line := range []string{
		"nft flush table ip kube-proxy; nft flush table ip clusterctl-policy",
		"nft flush ruleset",
	} {
		at := time.Now()
		mustRunOn(t, c, "a", line)
		retryUntil(t, func() error {
			_, err := c.Lab.Machine("a").
				Run(ctx, "nft list table ip kube-proxy | grep -q "+service+" && nft list table ip clusterctl-policy "+
					"| grep -q drop")
			return err
		})
		t.Logf("%q: put back after %.1f s", line, time.Since(at).Seconds())
		if took := time.Since(at); took > 10*time.Second {
			t.Errorf("%q: put back after %s", line, took)
		}
		excuses = append(
			excuses,
			excusedWindow{from: at, to: time.Now().Add(time.Second), reason: line,
				coversConnections: strings.Contains(line, "ruleset")},
		)
	}
	span := time.Since(start)
	checkClients(t, clients, excuses, span)
}

// checkClients stops the clients and reports failures outside of the excused windows.
func checkClients(t *testing.T, clients []*client, excuses []excusedWindow, span time.Duration) {
	for _, cl := range clients {
		cl.stop()
		failures, made := cl.read()
		t.Logf("%s: %d in %s", cl.name, made, span.Round(time.Second))
		if least := int(span/requestInterval) / 10; made < least {
			t.Errorf("%s: %d answers, at least %d were due", cl.name, made, least)
		}
		reported := 0
		for _, f := range failures {
			if slices.ContainsFunc(excuses, func(e excusedWindow) bool { return e.covers(cl, f) }) {
				continue
			}
			if reported++; reported <= 5 {
				t.Errorf("%s: at %s after %.2f s: %s", cl.name, f.At.UTC().Format("15:04:05.000"), f.Took, f.Error)
			}
		}
		if reported > 5 {
			t.Errorf("%s: %d failures in all", cl.name, reported)
		}
	}
}

// requestInterval is the interval of each client's requests.
const requestInterval = 50 * time.Millisecond

// startClients starts the clients: each kind of access, from each place that has it.
func startClients(t *testing.T, c *cluster.Cluster, service, balanced string) (list []*client) {
	t.Helper()
	program := filepath.Join(c.Bundle, "test-web")
	for _, x := range []struct {
		name, node, place string
		args              []string
	}{
		{"outside to a load balancer's address", "", "outside", []string{"-probe", "http://" + balanced + "/"}},
		{"outside to a node port of a", "a", "outside", []string{"-probe", "http://10.99.0.21:30081/"}},
		{"outside to the ingress of a", "a", "outside", []string{"-probe", "http://10.99.0.21/"}},
		{"outside to the ingress of b", "b", "outside", []string{"-probe", "http://10.99.0.22/"}},
		{"outside to a load balancer's address, held", "", "outside", []string{"-hold", balanced + ":7000"}},
		{"machine a to a service", "a", "machine", []string{"-probe", "http://" + service + "/"}},
		{"machine a to a service, held", "a", "machine", []string{"-hold", service + ":7000"}},
		{"a pod to a service by name", "a", "pod", []string{"-probe", "http://web.default.svc.cluster.local/"}},
		{"a pod to a service, held", "a", "pod", []string{"-hold", service + ":7000"}},
	} {
		cl := &client{name: x.name, node: x.node, keepsConnection: x.args[0] == "-hold"}
		args := append(x.args, "-every", requestInterval.String())
		ctx, stop := context.WithCancel(t.Context())
		cmd := c.Lab.Command(ctx, program, args...)
		switch x.place {
		case "machine":
			send := c.Lab.Machine("a").
				SSH(ctx, "root", "cat >/usr/local/bin/test-web.new && chmod 755 /usr/local/bin/test-web.new && mv "+
					"/usr/local/bin/test-web.new /usr/local/bin/test-web")
			content, err := os.ReadFile(program)
			if err != nil {
				t.Fatal(err)
			}
			send.Stdin = bytes.NewReader(content)
			if _, err := cluster.Output(send); err != nil {
				t.Fatal(err)
			}
			cmd = c.Lab.Machine("a").SSH(ctx, "root", "/usr/local/bin/test-web "+strings.Join(args, " "))
		case "pod":
			cmd = c.KubectlCommand(ctx, append([]string{"exec", "client", "--", "web"}, args...)...)
		}
		cmd.Stdout = &cl.out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var once sync.Once
		cl.stop = func() {
			once.Do(func() {
				stop()
				_ = cmd.Wait() // it was ended
			})
		}
		t.Cleanup(cl.stop)
		list = append(list, cl)
	}
	return list
}

func startCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	root, err := cluster.Root()
	if err != nil {
		t.Fatal(err)
	}
	web, err := os.ReadFile(filepath.Join(root, "tests/suites/demo/web.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(t.Context(), cluster.Options{Name: fmt.Sprintf("packets-%d", os.Getpid()), Log: os.Stderr,
		Machines: []string{"control=10.99.0.11", "a=10.99.0.21", "b=10.99.0.22"},
		Files:    map[string]string{"cluster.hcl": clusterConfig, "web.hcl": string(web)}, HasPrograms: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Down(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if err := webimage.Write(c.Bundle, filepath.Join(c.Folder, "images/web.tar")); err != nil {
		t.Fatal(err)
	}
	if err := c.Apply(t.Context(), os.Stderr); err != nil {
		t.Fatal(err)
	}
	return c
}

func mustRunOn(t *testing.T, c *cluster.Cluster, machine, line string) {
	t.Helper()
	if _, err := c.Lab.Machine(machine).Run(t.Context(), line); err != nil {
		t.Fatal(err)
	}
}

// killUnit kills a unit's process. It returns the time before and the time after its end, between which its connections
// end.
func killUnit(t *testing.T, c *cluster.Cluster, machine, unit string) (from, to time.Time) {
	t.Helper()
	out, err := c.Lab.Machine(machine).
		Run(t.Context(), "main=$(systemctl show -P MainPID "+unit+"); date +%s%N; kill -KILL $main; while [ -d "+
			"/proc/$main ]; do :; done; date +%s%N")
	var times [2]int64
	if err == nil {
		_, err = fmt.Sscan(out, &times[0], &times[1])
	}
	if err != nil {
		t.Fatalf("kill %s on %s: %v: %s", unit, machine, err, out)
	}
	return time.Unix(0, times[0]), time.Unix(0, times[1])
}

// awaitReady waits until systemd reports that a unit is ready.
func awaitReady(t *testing.T, c *cluster.Cluster, machine, unit string) {
	t.Helper()
	retryUntil(t, func() error {
		out, err := c.Lab.Machine(machine).Run(t.Context(), "systemctl is-active "+unit)
		if err != nil {
			return fmt.Errorf("%s on %s is %s", unit, machine, strings.TrimSpace(out))
		}
		return nil
	})
}

// serviceAddress waits for a service's address.
func serviceAddress(t *testing.T, c *cluster.Cluster, name, path string) (a string) {
	t.Helper()
	retryUntil(t, func() (err error) {
		if a, err = cluster.Output(c.KubectlCommand(t.Context(), "get", "service", name, "-o", "jsonpath="+
			path)); err == nil &&
			a == "" {
			err = fmt.Errorf("service %s has no address", name)
		}
		return err
	})
	return a
}

func retryUntil(t *testing.T, try func() error) {
	t.Helper()
	if err := cluster.Eventually(t.Context(), time.Minute, func(context.Context) error { return try() }); err != nil {
		t.Fatal(err)
	}
}
