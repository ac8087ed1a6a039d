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

	"clusterctl/tests/chaos/check"
	"clusterctl/tests/cluster"
	"clusterctl/tests/lab/machines"
)

// every is how often a client of the workload makes a request.
const every = 10 * time.Millisecond

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

// startTraffic starts a client of the workload's Service on every node; it comes back by itself after a power cut.
func startTraffic(ctx context.Context, c *cluster.Cluster) error {
	service, err := cluster.Output(c.Kube(ctx, "get", "service", "web", "-n", "shop", "-o", "jsonpath={.spec.clusterIP}"))
	if err != nil {
		return err
	}
	program, err := os.ReadFile(filepath.Join(c.Bundle, "test-web"))
	if err != nil {
		return err
	}
	for _, name := range places.Nodes {
		m := c.Lab.Machine(name)
		cmd := m.SSH(ctx, "root", "systemctl stop chaos-probe 2>/dev/null; rm -f /var/log/chaos-probe; cat >/usr/local/bin/test-web && chmod 755 /usr/local/bin/test-web")
		cmd.Stdin = strings.NewReader(string(program))
		if _, err := cluster.Output(cmd); err != nil {
			return err
		}
		unit := fmt.Sprintf(probeUnit, service, every)
		cmd = m.SSH(ctx, "root", "cat >/etc/systemd/system/chaos-probe.service && systemctl daemon-reload && systemctl enable --now -q chaos-probe")
		cmd.Stdin = strings.NewReader(unit)
		if _, err := cluster.Output(cmd); err != nil {
			return err
		}
	}
	return nil
}

// endTraffic stops the clients and returns what failed and how many requests each made.
func endTraffic(ctx context.Context, lab *machines.Lab) ([]check.Failure, map[string]int, error) {
	var failures []check.Failure
	made := map[string]int{}
	for _, name := range places.Nodes {
		out, err := lab.Machine(name).Run(ctx, "systemctl disable --now -q chaos-probe; cat /var/log/chaos-probe")
		if err != nil {
			return nil, nil, err
		}
		ended, last := 0, 0 // of processes before, and of the present one
		lines := bufio.NewScanner(strings.NewReader(out))
		for lines.Scan() {
			var line struct {
				check.Failure
				Made int `json:"made"`
			}
			if json.Unmarshal(lines.Bytes(), &line) != nil {
				continue // a power cut's last line
			}
			if line.Error != "" {
				line.Client = name
				failures = append(failures, line.Failure)
				continue
			}
			if line.Made < last {
				ended += last
			}
			last = line.Made
		}
		made[name] = ended + last
	}
	return failures, made, nil
}
