package proxy

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/nft"
	"clusterctl/tests/lab/netns"
)

// matrixRow states what the Service documentation requires for one way to reach a service. A field with several values
// stands for several rows.
type matrixRow struct {
	from         string // pod, node, outside, or several
	kind         string // type of address: ClusterIP, NodePort, LoadBalancer, ExternalIP, Headless, or several
	policy       string // internal and external traffic policy: Cluster, Local, or both
	at           string // location of the endpoint: here, there, or both; none means no endpoint
	want         outcome
	isClientKept bool // whether the endpoint sees the client's own address, if the kernel forwards the packet
	reason       string
}

const anyOutside = "NodePort LoadBalancer ExternalIP"

var matrix = []matrixRow{
	{"pod", "ClusterIP", "Cluster", "here there", outcomeReached, true, "pods reach all endpoints as themselves"},
	{
		"pod",
		"ClusterIP",
		"Local",
		"here",
		outcomeReached,
		true,
		"internalTrafficPolicy: Local uses endpoints of the client's machine",
	},
	{
		"pod node",
		"ClusterIP",
		"Local",
		"there",
		outcomeDropped,
		false,
		"internalTrafficPolicy: Local does not leave the machine",
	},
	{"node", "ClusterIP", "Cluster", "here there", outcomeReached, true, "the machine reaches all endpoints"},
	{"node", "ClusterIP", "Local", "here", outcomeReached, true, "the machine reaches endpoints of its own"},
	{
		"outside",
		"ClusterIP Headless",
		"Cluster Local",
		"here there",
		outcomeNoRoute,
		false,
		"cluster addresses lead nowhere from outside",
	},
	{
		"pod",
		anyOutside,
		"Cluster",
		"here there",
		outcomeReached,
		false,
		"with externalTrafficPolicy: Cluster the client's address may be lost",
	},
	{
		"node",
		anyOutside,
		"Cluster Local",
		"here there",
		outcomeReached,
		true,
		"the machine itself reaches all endpoints whatever the policy",
	},
	{
		"outside",
		anyOutside,
		"Cluster",
		"here there",
		outcomeReached,
		false,
		"any machine leads to any endpoint; the answer has to come back through it",
	},
	{
		"pod",
		anyOutside,
		"Local",
		"here there",
		outcomeReached,
		true,
		"for pods externalTrafficPolicy: Local leads as inside of the cluster",
	},
	{"outside", anyOutside, "Local", "here", outcomeReached, true, "externalTrafficPolicy: Local keeps the client's " +
		"address"},
	{
		"outside",
		anyOutside,
		"Local",
		"there",
		outcomeDropped,
		false,
		"externalTrafficPolicy: Local does not leave the machine",
	},
	{"pod node", "Headless", "Cluster Local", "here there", outcomeReached, true, "no proxy is in the way"},
	{"pod node", "ClusterIP", "Cluster", "none", outcomeRefused, false, "a service without endpoints refuses"},
	{"pod node outside", anyOutside, "Cluster", "none", outcomeRefused, false, "a service without endpoints refuses"},
	{
		"outside",
		"NotInRanges",
		"Cluster",
		"here",
		outcomeDropped,
		false,
		"loadBalancerSourceRanges drop whom they do not name",
	},
	{
		"outside",
		"InRanges",
		"Cluster",
		"here there",
		outcomeReached,
		false,
		"loadBalancerSourceRanges let through whom they name",
	},
	{
		"endpoint",
		"ClusterIP",
		"Cluster",
		"here",
		outcomeReached,
		false,
		"a pod that its service leads to itself sees another address than its own",
	},
}

// matrixServices lists the services of the rows, by traffic policy and location of the endpoint.
var matrixServices = []struct{ policy, at string }{
	{"Cluster", "here"},
	{"Cluster", "there"},
	{"Local", "here"},
	{"Local", "there"},
	{"Cluster", "none"},
}

var protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}

// matrixService returns a service that can be reached in every way.
func matrixService(n int) *corev1.Service {
	at := matrixServices[n]
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: strings.ToLower(at.policy + "-" + at.at)},
	}
	s.Spec.Type, s.Spec.ClusterIP = corev1.ServiceTypeLoadBalancer, fmt.Sprintf("10.96.0.%d", n+1)
	s.Spec.ClusterIPs = []string{s.Spec.ClusterIP, fmt.Sprintf("fd00:96::%d", n+1)}
	inner := corev1.ServiceInternalTrafficPolicy(at.policy)
	s.Spec.InternalTrafficPolicy, s.Spec.ExternalTrafficPolicy = &inner, corev1.ServiceExternalTrafficPolicy(at.policy)
	s.Spec.ExternalIPs = []string{fmt.Sprintf("192.0.2.%d", 100+n), fmt.Sprintf("fd00:192::%d", 100+n)}
	for _, ip := range []string{"192.0.2.%d", "fd00:192::%d"} {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress,
			corev1.LoadBalancerIngress{IP: fmt.Sprintf(ip, 1+n)})
	}
	for i, proto := range protocols {
		s.Spec.Ports = append(
			s.Spec.Ports,
			corev1.ServicePort{
				Name:     strings.ToLower(string(proto)),
				Protocol: proto,
				Port:     80,
				NodePort: int32(30000 + 10*n + i),
			},
		)
	}
	return s
}

// restrictedService returns a service with a load balancer address that is restricted to source ranges.
func restrictedService(n int, from ...string) *corev1.Service {
	s := matrixService(n % 2) // one with policy Cluster
	s.Name, s.Spec.ClusterIP = fmt.Sprint("ranged-", n), fmt.Sprintf("10.96.1.%d", n+1)
	s.Spec.ClusterIPs = []string{s.Spec.ClusterIP, fmt.Sprintf("fd00:96::1:%d", n+1)}
	s.Spec.ExternalIPs, s.Spec.LoadBalancerSourceRanges = nil, from
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
		{IP: fmt.Sprintf("192.0.2.%d", 50+n)},
		{IP: fmt.Sprintf("fd00:192::%d", 50+n)},
	}
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].NodePort = 0
	}
	return s
}

func endpointNumbers(at string) []int { return map[string][]int{"here": {2}, "there": {102}}[at] }

// target returns the destination of a row's packets in a family.
func (r matrixRow) target(f nft.Family, n int, proto corev1.Protocol) string {
	s := matrixService(n)
	pick := func(four, six string) string {
		if f == nft.IPv6 {
			return six
		}
		return four
	}
	port, ip := "80", ""
	switch r.kind {
	case "ClusterIP":
		ip = pick(s.Spec.ClusterIPs[0], s.Spec.ClusterIPs[1])
	case "NodePort":
		ip, port = pick("10.0.0.1", "fd00:10::1"), fmt.Sprint(s.Spec.Ports[slices.Index(protocols, proto)].NodePort)
	case "LoadBalancer":
		ip = pick(s.Status.LoadBalancer.Ingress[0].IP, s.Status.LoadBalancer.Ingress[1].IP)
	case "ExternalIP":
		ip = pick(s.Spec.ExternalIPs[0], s.Spec.ExternalIPs[1])
	case "InRanges":
		ip = pick(fmt.Sprintf("192.0.2.%d", 50+n), fmt.Sprintf("fd00:192::%d", 50+n))
	case "NotInRanges":
		ip = pick("192.0.2.52", "fd00:192::52")
	case "Headless":
		port, ip = "8080", pick("10.244.0.2", "fd00:244::2")
		if r.at == "there" {
			ip = pick("10.244.1.2", "fd00:244:1::2")
		}
	}
	return net.JoinHostPort(ip, port)
}

// TestEveryPathThroughAService sends real packets in every way that a service can be reached, in every mode.
// Proves S28, S29.
func TestEveryPathThroughAService(t *testing.T) {
	g := newTestNetwork(t)
	clients := map[string]*netns.Stack{"pod": g.podB, "node": nil, "outside": g.outside, "endpoint": g.podA}
	own := map[string][]string{
		"pod":      {"10.244.0.3", "fd00:244::3"},
		"node":     {"10.0.0.1", "fd00:10::1", "10.244.0.1", "fd00:244::1"},
		"outside":  {"10.0.0.9", "fd00:10::9"},
		"endpoint": {"10.244.0.2", "fd00:244::2"},
	}
	for _, mode := range []string{modeNFTables, modeIPTables, modeUserspace} {
		t.Run(mode, func(t *testing.T) {
			d := machineA(t, mode)
			for n, at := range matrixServices {
				s := matrixService(n)
				d.putService(t, s, newSlices(s.Name, endpointNumbers(at.at)...)...)
			}
			for n, from := range [][]string{{"10.0.0.0/24", "fd00:10::/64"}, {"10.0.0.9/32", "fd00:10::9/128"},
				{"198.51.100.0/24", "2001:db8::/32"}} {
				s := restrictedService(n, from...)
				d.putService(t, s, newSlices(s.Name, endpointNumbers(matrixServices[n%2].at)...)...)
			}
			rows := 0
			listener := listenSCTP(t, g)
			for _, r := range expandRows(matrix) {
				n := slices.IndexFunc(matrixServices,
					func(s struct{ policy, at string }) bool { return s.policy == r.policy && s.at == r.at })
				for _, proto := range protocols {
					for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
						rows++
						to := r.target(f, n, proto)
						name := fmt.Sprintf("from %s to %s %s (%s, endpoint %s) by %s", r.from, r.kind, to, r.policy,
							r.at, proto)
						if proto == corev1.ProtocolSCTP {
							if err := r.sendSCTP(listener, clients[r.from], to, own[r.from]); err != nil {
								t.Errorf("%s: %v: %s", name, err, r.reason)
							}
							continue
						}
						wait := longTimeout
						if r.want == outcomeDropped {
							wait = shortTimeout
						}
						got, server, seen, err := probe(clients[r.from], strings.ToLower(string(proto)), to, wait)
						want := r.want
						if r.from == "node" && proto == corev1.ProtocolUDP &&
							(want == outcomeRefused || want == outcomeDropped) {
							want = outcomeForbidden
						}
						if err != nil || got != want {
							t.Errorf("%s: %s, %v; want %s: %s", name, got, err, want, r.reason)
							continue
						}
						if got != outcomeReached {
							continue
						}
						if place := map[bool]string{true: "here",
							false: "there"}[strings.HasPrefix(server, "10.244.0.") ||
							strings.HasPrefix(server, "[fd00:244::")]; place != r.at {
							t.Errorf("%s: answered by %s", name, server)
						}
						// A relay hides the client's address, unless the packet bypasses the proxy.
						kept := r.isClientKept && (mode != modeUserspace || r.kind == "Headless" || r.from == "node")
						if isKept := slices.Contains(own[r.from], seen.String()); isKept != kept {
							t.Errorf("%s: seen as %s, its own address is kept: want %t: %s", name, seen, kept, r.reason)
						}
					}
				}
			}
			t.Logf("%d rows", rows)
			checkLoopbackNodePorts(t, mode)
		})
	}
}

// checkLoopbackNodePorts checks node ports at loopback addresses, which only some modes serve.
func checkLoopbackNodePorts(t *testing.T, mode string) {
	for _, f := range []struct {
		to   string
		want outcome
	}{
		{"127.0.0.1:30000", map[string]outcome{modeNFTables: outcomeRefused}[mode]},
		{"[::1]:30000", map[string]outcome{modeNFTables: outcomeRefused, modeIPTables: outcomeRefused}[mode]},
	} {
		if f.want == "" {
			f.want = outcomeReached
		}
		if got, _, _, err := probe(nil, "tcp", f.to, longTimeout); got != f.want {
			t.Errorf("a node port at %s: %s, %v; want %s", f.to, got, err, f.want)
		}
	}
}

// expandRows expands rows that stand for several.
func expandRows(rows []matrixRow) (all []matrixRow) {
	for _, r := range rows {
		for _, from := range strings.Fields(r.from) {
			for _, kind := range strings.Fields(r.kind) {
				for _, policy := range strings.Fields(r.policy) {
					for _, at := range strings.Fields(r.at) {
						one := r
						one.from, one.kind, one.policy, one.at = from, kind, policy, at
						all = append(all, one)
					}
				}
			}
		}
	}
	return all
}
