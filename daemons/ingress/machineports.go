package ingress

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/config"
	"clusterctl/daemons/ingress/route/gateway"
)

// portClaim is the assignment in a Gateway's service of an entry to a port of the machines.
type portClaim struct {
	entry   gateway.Entry
	service *corev1.Service
	served  bool // the entry is already served there
}

// machinePorts returns the ports of the machines on which entries are served. It omits entries without a port.
//
// Any user who may write services in a namespace can write the Gateway's service. Therefore a claim is valid only
// within the configured range, and must not take another Gateway's port. If several entries claim a port, an entry that
// is already served there gets it, then that of the oldest service. The leader assigns other ports to the rest. The
// caller holds mu.
func (w *watch) machinePorts() map[gateway.Entry]int {
	first, last, err := config.PortRange(w.cfg.GatewayPorts)
	if err != nil || w.cfg.GatewayAddresses == config.OfMachines {
		return nil
	}
	claims := map[int][]portClaim{}
	for _, key := range w.gatewayBuilder.Gateways() {
		s := w.routeBuilder.Backends.Service(serviceName(key))
		if s == nil || s.Labels[gatewayLabel] != key.Name {
			continue
		}
		for _, port := range w.gatewayBuilder.Ports(key) {
			at := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return int(p.Port) == port })
			if at < 0 {
				continue
			}
			if target := s.Spec.Ports[at].TargetPort.IntValue(); first <= target && target <= last {
				entry := gateway.Entry{Gateway: key, Port: port}
				claims[target] = append(claims[target], portClaim{entry, s, w.sockets.isServed(entry, target)})
			}
		}
	}
	ports := map[gateway.Entry]int{}
	for target, list := range claims {
		ports[slices.MinFunc(list, compareClaims).entry] = target
	}
	return ports
}

func compareClaims(a, b portClaim) int {
	if a.served != b.served {
		return map[bool]int{true: -1, false: 1}[a.served]
	}
	return cmp.Or(a.service.CreationTimestamp.Compare(b.service.CreationTimestamp.Time),
		cmp.Compare(a.entry.Gateway.String(), b.entry.Gateway.String()), cmp.Compare(a.entry.Port, b.entry.Port))
}
