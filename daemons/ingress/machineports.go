package ingress

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/config"
	"clusterctl/daemons/ingress/route/gateway"
)

// claim is what the service of a Gateway says: an entry is served on a port of the machines.
type claim struct {
	entry   gateway.Entry
	service *corev1.Service
	held    bool // it is served there already
}

// machinePorts are the ports of the machines on which entries are served, of those that have one.
//
// Services are written by who may write in their namespace, and what they say may take nothing from others: neither a
// port outside of the range that is for it, nor one that another Gateway has. Of several that want the same, the one
// that is served there already has it, then that of the oldest service; the leader gives the others another. It is
// called with the lock.
func (w *watch) machinePorts() map[gateway.Entry]int {
	first, last, err := config.PortRange(w.cfg.GatewayPorts)
	if err != nil || w.cfg.GatewayAddresses == config.OfMachines {
		return nil
	}
	claims := map[int][]claim{}
	for _, key := range w.gateway.Gateways() {
		s := w.build.Backends.Service(serviceOf(key))
		if s == nil || s.Labels[gatewayLabel] != key.Name {
			continue
		}
		for _, port := range w.gateway.Ports(key) {
			at := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return int(p.Port) == port })
			if at < 0 {
				continue
			}
			if target := s.Spec.Ports[at].TargetPort.IntValue(); first <= target && target <= last {
				entry := gateway.Entry{Gateway: key, Port: port}
				claims[target] = append(claims[target], claim{entry, s, w.fronts.has(entry, target)})
			}
		}
	}
	ports := map[gateway.Entry]int{}
	for target, list := range claims {
		ports[slices.MinFunc(list, better).entry] = target
	}
	return ports
}

func better(a, b claim) int {
	if a.held != b.held {
		return map[bool]int{true: -1, false: 1}[a.held]
	}
	return cmp.Or(a.service.CreationTimestamp.Compare(b.service.CreationTimestamp.Time),
		cmp.Compare(a.entry.Gateway.String(), b.entry.Gateway.String()), cmp.Compare(a.entry.Port, b.entry.Port))
}
