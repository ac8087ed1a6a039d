package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Ingress configures kube-ingress, the proxy that Ingresses set up.
type Ingress struct {
	Connection
	BindAddress      string        `flag:"bind-address" help:"address to serve clients on; all addresses of the machine when empty"`
	HTTPPort         int           `flag:"http-port" setting:"http_port" range:"1..65535" help:"port for plain requests"`
	HTTPSPort        int           `flag:"https-port" setting:"https_port" range:"1..65535" help:"port for requests over TLS"`
	HealthAddress    string        `flag:"health-address" setting:"health_address" help:"host:port to serve health and metrics on"`
	NodeName         string        `flag:"node-name" help:"name of the machine, which names its endpoint of the service; the host name when empty"`
	NodeIP           []string      `flag:"node-ip" help:"addresses of this machine, one of each family, which are written into the status of Ingresses; required with --service-name"`
	ServiceName      string        `flag:"service-name" help:"namespace/name of the service that this proxy is an endpoint of; empty publishes none"`
	PublishService   string        `flag:"publish-service" setting:"publish_service" help:"namespace/name of a service of type LoadBalancer whose addresses are written into the status of Ingresses; those of the machines with the proxy when empty"`
	TrustedCIDRs     []string      `flag:"trusted-cidrs" setting:"trusted_cidrs" help:"networks of trusted proxies in front of this one; their X-Forwarded and Forwarded fields are used"`
	ProxyFrom        []string      `flag:"proxy-protocol-from" setting:"proxy_protocol_from" help:"networks of load balancers whose connections start with the PROXY protocol, version 1 or 2"`
	AccessLog        bool          `flag:"access-log" setting:"access_log" help:"write a line of JSON for each request to the daemon's output"`
	LoadBalance      string        `flag:"load-balance" setting:"load_balance" help:"how the next endpoint is selected: round_robin, in turn; or least_connections, the one with the fewest requests"`
	SSLRedirect      bool          `flag:"ssl-redirect" setting:"ssl_redirect" help:"redirect plain requests for hosts that have TLS, unless an Ingress disables it"`
	MaxBodyMiB       int           `flag:"max-body-mib" setting:"max_body_mib" range:"0..1048576" help:"largest body of a request unless an Ingress sets it, MiB; 0 is unlimited"`
	MaxHeadKiB       int           `flag:"max-head-kib" setting:"max_head_kib" range:"4..1024" help:"largest header section of a request or a response, KiB"`
	ConnectTimeout   time.Duration `flag:"connect-timeout" setting:"connect_timeout" range:"100ms..1m" help:"timeout of a connection to an endpoint, unless an Ingress sets it"`
	ReadTimeout      time.Duration `flag:"read-timeout" setting:"read_timeout" range:"1s..24h" help:"how long an endpoint may be silent, unless an Ingress sets it; also for both sides of a WebSocket"`
	SendTimeout      time.Duration `flag:"send-timeout" setting:"send_timeout" range:"1s..24h" help:"how long receiving and sending a part of a request's body may take, unless an Ingress sets it"`
	MinBodyRate      int           `flag:"min-body-rate" setting:"min_body_rate" range:"0..1048576" help:"lowest rate of a request's body, bytes per second: a body may take send-timeout plus a second for each of these amounts, unless an Ingress sets it; 0 is unlimited"`
	HeadTimeout      time.Duration `flag:"head-timeout" setting:"head_timeout" range:"1s..5m" help:"how long receiving a request's header section may take"`
	IdleTimeout      time.Duration `flag:"idle-timeout" setting:"idle_timeout" range:"1s..1h" help:"how long a client's connection may be idle"`
	MaxConnections   int           `flag:"max-connections" setting:"max_connections" range:"64..1048576" help:"largest number of client connections. At the limit, connections that are idle longest are closed; if none is idle, new connections wait"`
	ClientShare      int           `flag:"client-share" setting:"client_share" range:"1..100" help:"percent of max-connections that one client may have once half of them are in use; networks of trusted-cidrs and proxy-protocol-from are not limited"`
	KeepIdle         int           `flag:"keep-idle" setting:"keep_idle" range:"0..10000" help:"idle connections that are kept to each endpoint"`
	KeepTimeout      time.Duration `flag:"keep-timeout" setting:"keep_timeout" range:"1s..1h" help:"how long an idle connection to an endpoint is kept"`
	MinTLSVersion    string        `flag:"tls-min-version" setting:"tls_min_version" help:"oldest version of TLS that clients may use: 1.2 or 1.3"`
	GatewayAddresses string        `flag:"gateway-addresses" setting:"gateway_addresses" help:"where Gateways are reached: machines, all Gateways at the addresses of the machines and on the ports of Ingresses; or load_balancer, each Gateway by its own service of type LoadBalancer, on any port"`
	GatewayPorts     string        `flag:"gateway-ports" setting:"gateway_ports" help:"ports of the machines to which those services lead, as first-last"`
	DrainTimeout     time.Duration `flag:"drain-timeout" setting:"drain_timeout" range:"1s..20s" help:"how long requests may take to finish when the daemon stops; upgraded connections are closed then"`
}

// DefaultIngress returns the documented defaults.
func DefaultIngress() Ingress {
	return Ingress{
		HTTPPort: 80, HTTPSPort: 443, HealthAddress: "127.0.0.1:10262", LoadBalance: RoundRobin, SSLRedirect: true,
		MaxHeadKiB: 32, MaxConnections: 8192, ClientShare: 10, MinBodyRate: 512,
		ConnectTimeout: 5 * time.Second, ReadTimeout: time.Minute, SendTimeout: time.Minute,
		HeadTimeout: 15 * time.Second, IdleTimeout: 75 * time.Second,
		GatewayAddresses: OfMachines, GatewayPorts: "20000-20511", KeepIdle: 320, KeepTimeout: time.Minute,
		MinTLSVersion: "1.2", DrainTimeout: 10 * time.Second,
	}
}

// Methods to select the next endpoint.
const (
	RoundRobin       = "round_robin"
	LeastConnections = "least_connections"
)

// Addresses of Gateways.
const (
	OfMachines     = "machines"
	OfLoadBalancer = "load_balancer"
)

// PortRange parses two ports separated by a dash.
func PortRange(text string) (first, last int, err error) {
	from, to, _ := strings.Cut(text, "-")
	first, err = strconv.Atoi(from)
	if err == nil {
		last, err = strconv.Atoi(to)
	}
	if err != nil || first < 1 || last > 65535 || last < first {
		return 0, 0, fmt.Errorf("%q is not two ports, as \"20000-20511\"", text)
	}
	return first, last, nil
}

func (i *Ingress) problems() (list []Problem) {
	add := func(name, format string, args ...any) {
		list = append(list, Problem{Name: name, Text: fmt.Sprintf(format, args...)})
	}
	if i.LoadBalance != RoundRobin && i.LoadBalance != LeastConnections {
		add("load_balance", "%q is neither %q nor %q", i.LoadBalance, RoundRobin, LeastConnections)
	}
	if i.MinTLSVersion != "1.2" && i.MinTLSVersion != "1.3" {
		add("tls_min_version", "%q is neither \"1.2\" nor \"1.3\"", i.MinTLSVersion)
	}
	if i.GatewayAddresses != OfMachines && i.GatewayAddresses != OfLoadBalancer {
		add("gateway_addresses", "%q is neither %q nor %q", i.GatewayAddresses, OfMachines, OfLoadBalancer)
	}
	if first, last, err := PortRange(i.GatewayPorts); err != nil {
		add("gateway_ports", "%v", err)
	} else if within := func(port int) bool { return first <= port && port <= last }; within(i.HTTPPort) ||
		within(i.HTTPSPort) {
		add("gateway_ports", "%s contains http_port (%d) or https_port (%d): write a range without them, as "+
			"\"20000-20511\"", i.GatewayPorts, i.HTTPPort, i.HTTPSPort)
	}
	if i.HTTPPort == i.HTTPSPort {
		add("https_port", "http_port is %d as well: write two different ports", i.HTTPSPort)
	}
	networks := func(name string, list []string) {
		for _, text := range list {
			if _, err := netip.ParsePrefix(text); err != nil {
				add(name, "%q is not a network, as \"10.0.0.0/24\"", text)
			}
		}
	}
	networks("trusted_cidrs", i.TrustedCIDRs)
	networks("proxy_protocol_from", i.ProxyFrom)
	if namespace, name, ok := strings.Cut(i.PublishService, "/"); i.PublishService != "" &&
		(!ok || namespace == "" || name == "") {
		add("publish_service", "%q is not namespace/name", i.PublishService)
	}
	return append(list, addresses(map[string]string{"health_address": i.HealthAddress})...)
}
