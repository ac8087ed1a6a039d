package dns

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/client/presence"
	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
	"clusterctl/kube/kubernetes"
)

// newPublisher returns the publisher of this server's endpoint.
func newPublisher(
	cfg config.DNS,
	env run.Env,
	clients kubernetes.Interface,
	at netip.AddrPort,
) (*presence.Publisher, error) {
	namespace, service, ok := strings.Cut(cfg.ServiceName, "/")
	if !ok {
		return nil, fmt.Errorf("service name %q is not namespace/name", cfg.ServiceName)
	}
	var err error
	p := &presence.Publisher{
		Client:         clients,
		Log:            env.Log,
		Namespace:      namespace,
		Service:        service,
		Manager:        "dns.clusterctl",
		IsMachineLocal: cfg.NodeLocal,
		KeepLast:       true,
	}
	for _, port := range []discoveryv1.EndpointPort{{Name: ptr.To("dns"), Protocol: ptr.To(corev1.ProtocolUDP)},
		{Name: ptr.To("dns-tcp"), Protocol: ptr.To(corev1.ProtocolTCP)}} {
		port.Port = ptr.To(int32(at.Port()))
		p.Ports = append(p.Ports, port)
	}
	if p.Node, err = nodeName(cfg.NodeName); err != nil {
		return nil, err
	}
	switch {
	case cfg.NodeIP != "":
		ip, err := netip.ParseAddr(cfg.NodeIP)
		if err != nil {
			return nil, fmt.Errorf("node address: %w", err)
		}
		p.Addrs = []netip.Addr{ip}
	case !at.Addr().IsUnspecified():
		p.Addrs = []netip.Addr{at.Addr().Unmap()}
	default:
		conn, err := net.Dial("udp4", "192.0.2.1:9") // sends nothing; it only looks up the route
		if err != nil {
			return nil, fmt.Errorf("find the node's address (set --node-ip): %w", err)
		}
		defer conn.Close()
		p.Addrs = []netip.Addr{conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()}
	}
	return p, nil
}
