package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// GitOps configures the GitOps controller. Its main is cmd/gitops.
type GitOps struct {
	Connection
	HealthAddress string `flag:"health-address" help:"host:port to serve health and metrics on; none when empty"`
	StateDir      string `flag:"state-dir" help:"directory of the cache of repositories"`
	LeaderElect   bool   `flag:"leader-elect" help:"be active only while holding the lease kube-system/gitops-controller"`
	Workers       int    `flag:"workers" setting:"workers" range:"1..64" help:"number of sources that are reconciled at the same time"`

	ReceiverPort     int      `flag:"receiver-port" setting:"receiver_port" range:"0..65535" help:"port of the machine for webhooks over TLS, in addition to the loopback port; 0 serves none"`
	ReceiverHTTPPort int      `flag:"receiver-http-port" setting:"receiver_http_port" range:"0..65535" help:"port of 127.0.0.1 for webhooks without TLS; 0 serves none"`
	ReceiverCertFile string   `flag:"receiver-cert-file" help:"certificate of the port for webhooks; a self-signed one when empty"`
	ReceiverKeyFile  string   `flag:"receiver-key-file" help:"private key of that certificate"`
	NotifyHosts      []string `flag:"notify-hosts" setting:"notify_hosts" help:"hosts that sources outside of kube-system may send notifications to, as [\"hooks.example\", \"*.example\"]; all when empty"`
	NodeName         string   `flag:"node-name" help:"name of the machine, which its endpoint of the service names"`
	NodeIP           []string `flag:"node-ip" help:"addresses of the machine, one of each family, at which the service gitops-receiver reaches the port for webhooks; empty publishes none"`
}

// DefaultGitOps returns the documented defaults.
func DefaultGitOps() GitOps {
	return GitOps{HealthAddress: "127.0.0.1:10263", StateDir: "/var/cache/gitops-controller", LeaderElect: true,
		Workers: 4, ReceiverHTTPPort: 10266}
}

func (g *GitOps) problems() (list []Problem) {
	add := func(name, format string, args ...any) {
		list = append(list, Problem{Name: name, Text: fmt.Sprintf(format, args...)})
	}
	if g.Workers < 1 || g.Workers > 64 {
		add("workers", "%d is not between 1 and 64", g.Workers)
	}
	_, health, _ := net.SplitHostPort(g.HealthAddress)
	if g.ReceiverPort != 0 && g.ReceiverPort == g.ReceiverHTTPPort {
		add("receiver_port", "receiver_http_port is %d as well: write two different ports", g.ReceiverPort)
	}
	if g.ReceiverPort != 0 && strconv.Itoa(g.ReceiverPort) == health {
		add("receiver_port", "health and metrics are served on %s: write another port", health)
	}
	if g.ReceiverHTTPPort != 0 && strconv.Itoa(g.ReceiverHTTPPort) == health {
		add("receiver_http_port", "health and metrics are served on %s: write another port", health)
	}
	if (g.ReceiverCertFile == "") != (g.ReceiverKeyFile == "") {
		add("receiver_cert_file", "the certificate and its key are both set, or neither")
	}
	for _, host := range g.NotifyHosts {
		if strings.ContainsAny(host, "/:@ ") || strings.Contains(strings.TrimPrefix(host, "*."), "*") || host == "" {
			add("notify_hosts", "%q is not a host, as \"hooks.example\" or \"*.example\"", host)
		}
	}
	for _, ip := range g.NodeIP {
		if _, err := netip.ParseAddr(ip); err != nil {
			add("node_ip", "%q is not an IP address", ip)
		}
	}
	return append(list, addresses(map[string]string{"health_address": g.HealthAddress})...)
}
