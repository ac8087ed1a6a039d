package proxy

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/config"
	"clusterctl/daemons/nft"
	"clusterctl/daemons/proxy/rules"
	"clusterctl/daemons/run"
	"clusterctl/daemons/run/reconcile"
	"clusterctl/tests/lab/netns"
)

// testNetwork is the network of a small cluster. The test's own network namespace is machine a:
//
//	pod 10.244.0.2 ─┐
//	pod 10.244.0.3 ─┴ cni0, machine a, 10.0.0.1 ── lan ── 10.0.0.2, machine b with pod 10.244.1.2
//	                                                └──── 10.0.0.9, outside, which only knows load balancer addresses
//
// IPv6 addresses are fd00:… with the same last parts.
type testNetwork struct {
	podA, podB, outside, machineB *netns.Stack // podA is an endpoint; podB is a client
}

// runIP runs ip on machine a.
func runIP(t testing.TB, words string) {
	t.Helper()
	ipOf(t, strings.Fields(words)...)
}

func newTestNetwork(t testing.TB) *testNetwork {
	t.Helper()
	g := &testNetwork{podA: netns.New(t), podB: netns.New(t), outside: netns.New(t), machineB: netns.New(t)}
	lan := netns.New(t)
	lan.IP(t, "link add lan type bridge")
	lan.IP(t, "link set lan up")
	for _, name := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		setSysctl(t, name, "1")
		g.machineB.SetSysctl(t, name, "1")
	}
	// The kernel limits the rate of rejections.
	setSysctl(t, "net.ipv4.icmp_ratelimit", "0")
	setSysctl(t, "net.ipv6.icmp.ratelimit", "0")
	runIP(t, "link add cni0 type bridge")
	runIP(t, "link set cni0 up")
	runIP(t, "addr add 10.244.0.1/24 dev cni0")
	runIP(t, "addr add fd00:244::1/112 dev cni0 nodad")
	t.Cleanup(func() { runIP(t, "link del cni0") })
	for i, pod := range []*netns.Stack{g.podA, g.podB} {
		connectNamespace(t, pod, fmt.Sprintf("pod%d", i), nil)
		t.Cleanup(func() { runIP(t, fmt.Sprintf("link del pod%d", i)) })
		runIP(t, fmt.Sprintf("link set pod%d master cni0", i))
		runIP(t, fmt.Sprintf("link set pod%d type bridge_slave hairpin on", i)) // as the bridge plugin does
		runIP(t, fmt.Sprintf("link set pod%d up", i))
		addAddresses(t, pod, fmt.Sprintf("10.244.0.%d/24", i+2), fmt.Sprintf("fd00:244::%d/112", i+2))
		pod.IP(t, "route add default via 10.244.0.1")
		pod.IP(t, "-6 route add default via fd00:244::1")
	}
	for i, m := range []*netns.Stack{g.outside, g.machineB} {
		connectNamespace(t, m, fmt.Sprintf("lan%d", i), lan)
		n := []int{9, 2}[i]
		addAddresses(t, m, fmt.Sprintf("10.0.0.%d/24", n), fmt.Sprintf("fd00:10::%d/112", n))
		lan.IP(t, fmt.Sprintf("link set lan%d master lan", i))
		lan.IP(t, fmt.Sprintf("link set lan%d up", i))
	}
	runIP(t, "link add eth0 type veth peer name lana")
	moveLink(t, lan, "lana")
	t.Cleanup(func() { runIP(t, "link del eth0") })
	lan.IP(t, "link set lana master lan")
	lan.IP(t, "link set lana up")
	for _, words := range []string{"addr add 10.0.0.1/24 dev eth0", "addr add fd00:10::1/112 dev eth0 " +
		"nodad", "link set eth0 up", "route add default via 10.0.0.254",
		"-6 route add default via fd00:10::254", "route add 10.244.1.0/24 via " +
			"10.0.0.2", "-6 route add fd00:244:1::/112 via fd00:10::2"} {
		runIP(t, words)
	}
	for _, words := range []string{"addr add 10.244.1.2/32 dev lo", "addr add fd00:244:1::2/128 dev lo " +
		"nodad", "route add 10.244.0.0/24 via 10.0.0.1", "-6 route add fd00:244::/112 via fd00:10::1"} {
		g.machineB.IP(t, words)
	}
	g.outside.IP(t, "route add 192.0.2.0/24 via 10.0.0.1")
	g.outside.IP(t, "-6 route add fd00:192::/112 via fd00:10::1")
	for _, at := range []struct {
		in      *netns.Stack
		address []string
	}{{g.podA, []string{"10.244.0.2", "fd00:244::2"}}, {g.machineB, []string{"10.244.1.2", "fd00:244:1::2"}}} {
		for _, a := range at.address {
			serveTCP(t, at.in, net.JoinHostPort(a, "8080"))
			serveUDP(t, at.in, net.JoinHostPort(a, "8080"))
		}
	}
	// IPv6 neighbours are only found some time after their links are up.
	for _, from := range []*netns.Stack{g.podA, g.podB, nil} {
		for _, to := range []string{"10.244.0.2:8080", "[fd00:244::2]:8080", "10.244.1.2:8080",
			"[fd00:244:1::2]:8080"} {
			g.waitFor(t, from, to, outcomeReached)
		}
	}
	for _, to := range []string{"10.0.0.1:1", "[fd00:10::1]:1"} {
		g.waitFor(t, g.outside, to, outcomeRefused)
	}
	return g
}

func (g *testNetwork) waitFor(t testing.TB, from *netns.Stack, to string, want outcome) {
	t.Helper()
	var got outcome
	var err error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if got, _, _, err = probe(from, "tcp", to, shortTimeout); err == nil && got == want {
			return
		}
	}
	t.Fatalf("%s: %s, %v; want %s", to, got, err, want)
}

func setSysctl(t testing.TB, name, value string) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/"+strings.ReplaceAll(name, ".", "/"), []byte(value), 0o644); err != nil {
		t.Fatal(err)
	}
}

// connectNamespace connects eth0 of a namespace to an interface of this or another namespace.
func connectNamespace(t testing.TB, s *netns.Stack, peer string, to *netns.Stack) {
	t.Helper()
	runIP(t, "link add "+peer+" type veth peer name eth9")
	moveLink(t, s, "eth9")
	s.IP(t, "link set eth9 name eth0")
	s.IP(t, "link set eth0 up")
	if to != nil {
		moveLink(t, to, peer)
	}
}

func moveLink(t testing.TB, to *netns.Stack, link string) {
	t.Helper()
	here := netns.Current(t)
	here.MoveLink(t, link, to)
}

func addAddresses(t testing.TB, s *netns.Stack, four, six string) {
	t.Helper()
	s.IP(t, "addr add "+four+" dev eth0")
	s.IP(t, "addr add "+six+" dev eth0 nodad")
}

// serveTCP answers with the client's address. It closes its side when the client does.
func serveTCP(t testing.TB, in *netns.Stack, at string) {
	t.Helper()
	var ln net.Listener
	if err := in.Do(func() (err error) { ln, err = net.Listen("tcp", at); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				fmt.Fprintf(c, "%s %s\n", at, c.RemoteAddr())
				_, _ = io.Copy(c, c)
			}()
		}
	}()
}

func serveUDP(t testing.TB, in *netns.Stack, at string) {
	t.Helper()
	var pc net.PacketConn
	if err := in.Do(func() (err error) { pc, err = net.ListenPacket("udp", at); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pc.Close() })
	go func() {
		b := make([]byte, 2048)
		for {
			_, from, err := pc.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = pc.WriteTo(fmt.Appendf(nil, "%s %s\n", at, from), from)
			}
		}
	}()
}

// outcome is the result for a client.
type outcome string

const (
	outcomeReached outcome = "reached"
	outcomeRefused outcome = "refused"
	outcomeDropped outcome = "dropped"
	outcomeNoRoute outcome = "no way there" // the client itself has no route
	// outcomeForbidden by the client's own machine, which does not let UDP clients distinguish rejected from dropped
	// packets
	outcomeForbidden outcome = "forbidden"
	longTimeout              = 2 * time.Second
	shortTimeout             = 300 * time.Millisecond
)

// probe sends a request from a namespace, nil for machine a. It returns the outcome, the responding server, and the
// client address that the server saw.
func probe(
	from *netns.Stack,
	network, to string,
	wait time.Duration,
) (o outcome, server string, seen netip.Addr, err error) {
	ask := func() error {
		c, err := net.DialTimeout(network, to, wait)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(wait))
		if network == "udp" {
			if _, err := io.WriteString(c, "?"); err != nil {
				return err
			}
		}
		b := make([]byte, 256)
		n, err := c.Read(b)
		if err != nil {
			return err
		}
		words := strings.Fields(string(b[:n]))
		if len(words) != 2 {
			return fmt.Errorf("answer %q", b[:n])
		}
		server, seen = words[0], netip.MustParseAddrPort(words[1]).Addr()
		return nil
	}
	if from == nil {
		err = ask()
	} else {
		err = from.Do(ask)
	}
	var timeout net.Error
	switch {
	case err == nil:
		return outcomeReached, server, seen, nil
	case errors.Is(err, syscall.ECONNREFUSED):
		return outcomeRefused, "", seen, nil
	case errors.Is(err, syscall.EPERM):
		return outcomeForbidden, "", seen, nil
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return outcomeNoRoute, "", seen, nil
	case errors.As(err, &timeout) && timeout.Timeout():
		return outcomeDropped, "", seen, nil
	}
	return "", "", seen, err
}

// machineA returns a daemon for machine a that is driven by the test. It has services and slices, but no API server.
func machineA(t testing.TB, mode string) *daemon {
	t.Helper()
	d := &daemon{
		cfg: config.DefaultProxy(),
		env: run.Env{Log: slog.New(slog.NewTextHandler(os.Stderr,
			&slog.HandlerOptions{Level: slog.LevelWarn}))},
		name:        "a",
		mode:        mode,
		pending:     reconcile.NewKeys(reconcile.NewSignal()),
		programming: newProgrammingMetrics(time.Now()),
		machine: rules.Machine{
			Pods: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")},
		},
		services: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		duration: newDuration(),
		slices:   cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{serviceIndex: sliceService}),
	}
	d.relays.log, d.health.log = d.env.Log, d.env.Log
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	d.nodes = corelisters.NewNodeLister(nodes)
	if err := d.openFamilies(); err != nil {
		t.Fatal(err)
	}
	if mode == modeUserspace {
		ctx, done := t.Context(), make(chan error, 1)
		go func() { done <- d.relays.serve(ctx) }()
		t.Cleanup(func() {
			if err := <-done; err != nil {
				t.Error(err)
			}
			d.relays.close()
		})
	}
	return d
}

// putService passes a service with its slices to the daemon, and updates the kernel.
func (d *daemon) putService(t testing.TB, s *corev1.Service, slices ...*discoveryv1.EndpointSlice) {
	t.Helper()
	if err := d.services.Update(s); err != nil {
		t.Fatal(err)
	}
	for _, slice := range slices {
		if err := d.slices.Update(slice); err != nil {
			t.Fatal(err)
		}
	}
	d.queueService(s)
	if err := d.sync(); err != nil {
		t.Fatal(err)
	}
}

// newSlices returns the slices of a service, one of each family, with pods by number: 2 is on machine a, and 102 on
// machine b.
func newSlices(service string, numbers ...int) (list []*discoveryv1.EndpointSlice) {
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop",
				Name:      fmt.Sprint(service, f),
				Labels:    map[string]string{discoveryv1.LabelServiceName: service},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
		}
		a, b := "10.244.0.%d", "10.244.1.%d"
		if f == nft.IPv6 {
			s.AddressType, a, b = discoveryv1.AddressTypeIPv6, "fd00:244::%d", "fd00:244:1::%d"
		}
		for _, proto := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
			name, port := strings.ToLower(string(proto)), int32(8080)
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Port: &port, Protocol: &proto})
		}
		yes := true
		for _, n := range numbers {
			node, address := "a", fmt.Sprintf(a, n)
			if n > 100 {
				node, address = "b", fmt.Sprintf(b, n-100)
			}
			s.Endpoints = append(
				s.Endpoints,
				discoveryv1.Endpoint{
					Addresses:  []string{address},
					NodeName:   &node,
					Conditions: discoveryv1.EndpointConditions{Ready: &yes},
				},
			)
		}
		list = append(list, s)
	}
	return list
}
