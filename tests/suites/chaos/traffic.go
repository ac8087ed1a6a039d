package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/suites/chaos/check"
)

// requestInterval is the interval between two requests of one client of the workload. Each request opens a connection.
// With an interval of 10 ms, six clients used half of a machine with two processors.
const requestInterval = 50 * time.Millisecond

const probeUnit = `[Unit]
Description=client of the workload
StartLimitIntervalSec=0
[Service]
ExecStart=/usr/local/bin/test-web -probe http://%s/ -every %s
StandardOutput=append:/var/log/chaos-probe
Restart=always
[Install]
WantedBy=multi-user.target
`

// startTraffic starts two clients of the workload's Service on every node: one as a unit of the machine and one in a
// pod. Both start again by themselves after a power cut.
func startTraffic(ctx context.Context, c *cluster.Cluster) error {
	service, err := cluster.Output(c.KubectlCommand(ctx, "get", "service", "web", "-n", "shop", "-o",
		"jsonpath={.spec.clusterIP}"))
	if err != nil {
		return err
	}
	program, err := os.ReadFile(filepath.Join(c.Bundle, "test-web"))
	if err != nil {
		return err
	}
	for _, name := range machineNames.Nodes {
		if _, err := c.Lab.Machine(name).Run(ctx, "rm -rf /var/log/chaos"); err != nil {
			return err
		}
	}
	if err := startPods(ctx, c, service); err != nil {
		return err
	}
	for _, name := range machineNames.Nodes {
		m := c.Lab.Machine(name)
		cmd := m.SSH(ctx, "root", "systemctl stop chaos-probe 2>/dev/null; rm -f /var/log/chaos-probe; cat "+
			">/usr/local/bin/test-web && chmod 755 /usr/local/bin/test-web")
		cmd.Stdin = strings.NewReader(string(program))
		if _, err := cluster.Output(cmd); err != nil {
			return err
		}
		unit := fmt.Sprintf(probeUnit, service, requestInterval)
		cmd = m.SSH(ctx, "root", "cat >/etc/systemd/system/chaos-probe.service && systemctl daemon-reload && "+
			"systemctl enable --now -q chaos-probe")
		cmd.Stdin = strings.NewReader(unit)
		if _, err := cluster.Output(cmd); err != nil {
			return err
		}
	}
	return nil
}

const probePods = `{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"probe","namespace":"shop"},"spec":{
  "selector":{"matchLabels":{"app":"probe"}},"template":{"metadata":{"labels":{"app":"probe"}},"spec":{
    "terminationGracePeriodSeconds":0,"tolerations":[{"operator":"Exists"}],
    "volumes":[{"name":"log","hostPath":{"path":"/var/log/chaos","type":"DirectoryOrCreate"}}],
    "containers":[{"name":"probe","image":%q,"command":["web","-probe","http://%s/","-every","%s","-log","/log/pod"],"resources":{"requests":{"cpu":"250m","memory":"32Mi"}},"volumeMounts":[{"name":"log","mountPath":"/log"}]}]}}}}`

func startPods(ctx context.Context, c *cluster.Cluster, service string) error {
	image, err := cluster.Output(c.KubectlCommand(ctx, "get", "deployment", "web", "-n", "shop", "-o",
		"jsonpath={.spec.template.spec.containers[0].image}"))
	if err != nil {
		return err
	}
	apply := c.KubectlCommand(ctx, "apply", "-f", "-")
	apply.Stdin = strings.NewReader(fmt.Sprintf(probePods, image, service, requestInterval))
	if _, err := cluster.Output(apply); err != nil {
		return err
	}
	_, err = cluster.Output(c.KubectlCommand(ctx, "rollout", "status", "-n", "shop", "daemonset/probe",
		"--timeout=60s"))
	return err
}

// endTraffic stops the clients, and returns the failures and the number of requests of each client.
func endTraffic(ctx context.Context, c *cluster.Cluster) ([]check.Failure, map[string]int, error) {
	var failures []check.Failure
	made := map[string]int{}
	for _, name := range machineNames.Nodes {
		for client, line := range map[string]string{
			name:            "systemctl disable --now -q chaos-probe; cat /var/log/chaos-probe",
			name + "'s pod": "cat /var/log/chaos/pod",
		} {
			out, err := c.Lab.Machine(name).Run(ctx, line)
			if err != nil {
				return nil, nil, err
			}
			failed, n := parseRequests(client, out)
			failures, made[client] = append(failures, failed...), n
		}
	}
	_, err := cluster.Output(c.KubectlCommand(ctx, "delete", "-n", "shop", "daemonset/probe"))
	return failures, made, err
}

// parseRequests parses the output of a client. It returns the failures and the number of requests.
func parseRequests(client, printed string) (failures []check.Failure, made int) {
	ended, last := 0, 0 // requests of ended processes, and of the present process
	lines := bufio.NewScanner(strings.NewReader(printed))
	for lines.Scan() {
		var line struct {
			check.Failure
			Made int `json:"made"`
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue // a line that a power cut has truncated
		}
		if line.Error != "" {
			line.Client = client
			failures = append(failures, line.Failure)
			continue
		}
		if line.Made < last {
			ended += last
		}
		last = line.Made
	}
	return failures, ended + last
}
