package cluster

import (
	"context"
	"fmt"
	"strings"

	"clusterctl/tests/lab/machines"
)

// Units are all units that a machine of a cluster can run, including etcd and containerd.
var Units = []string{
	"etcd",
	"kube-apiserver",
	"kube-controller-manager",
	"kube-scheduler",
	"kube-address",
	"kube-dns",
	"metrics-server",
	"containerd",
	"kubelet",
	"kube-proxy",
	"kube-network",
	"kube-ingress",
}

// Memory is the memory of the main process of a unit.
type Memory struct {
	Machine, Unit       string
	Resident, Anonymous int // VmRSS and RssAnon of /proc/PID/status, in KiB
}

// Memories returns the memory of each of Units that runs on a machine.
func Memories(ctx context.Context, m *machines.Machine) ([]Memory, error) {
	text, err := m.Run(ctx, `for u in `+strings.Join(Units, " ")+`; do
		p=$(systemctl show -p MainPID --value $u); [ "$p" = 0 ] || echo $u $(awk '/^(VmRSS|RssAnon):/ {print $2}' /proc/$p/status)
	done`)
	if err != nil {
		return nil, err
	}
	var list []Memory
	for line := range strings.Lines(text) {
		one := Memory{Machine: m.Name}
		if _, err := fmt.Sscan(line, &one.Unit, &one.Resident, &one.Anonymous); err != nil {
			return nil, fmt.Errorf("read %q of %s: %w", strings.TrimSpace(line), m.Name, err)
		}
		list = append(list, one)
	}
	return list, nil
}
