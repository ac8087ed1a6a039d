package network

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/network/link"
	"clusterctl/daemons/network/policy"
	"clusterctl/daemons/nft"
	"clusterctl/daemons/nft/kernel"
)

// podPath is a path from a pod of one machine to a pod of another, each in its own network namespace:
//
//	pod 10.1.0.1 ── machine 10.0.0.1 ── wire ── 10.0.0.2 machine ── pod 10.2.0.1
type podPath struct{ machines, pods [2]*netNamespace }

// newPodPath creates two connected machines with routes to each other's pods. join connects a pod to its machine.
func newPodPath(b *testing.B, join func(machine, pod *netNamespace, address string)) podPath {
	b.Helper()
	var l podPath
	for i := range l.machines {
		l.machines[i], l.pods[i] = newNetNamespace(b), newNetNamespace(b)
	}
	l.machines[0].addPair(b, "wire", "far")
	l.machines[0].move(b, "far", l.machines[1])
	l.machines[1].ip(b, "link", "set", "far", "name", "wire")
	for i, m := range l.machines {
		m.ip(b, "addr", "add", fmt.Sprintf("10.0.0.%d/24", i+1), "dev", "wire")
		m.ip(b, "link", "set", "wire", "up")
		m.ip(b, "route", "add", fmt.Sprintf("10.%d.0.0/24", 2-i), "via", fmt.Sprintf("10.0.0.%d", 2-i))
		if err := m.runInside(func() error {
			return enableForwarding([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
		}); err != nil {
			b.Fatal(err)
		}
		join(m, l.pods[i], fmt.Sprintf("10.%d.0.1", i+1))
	}
	return l
}

// connectBare connects a pod only by a bare pair of interfaces.
func connectBare(b *testing.B) func(machine, pod *netNamespace, address string) {
	return func(machine, pod *netNamespace, address string) {
		machine.addPair(b, "pod", "eth0")
		machine.move(b, "eth0", pod)
		machine.ip(b, "addr", "add", "169.254.1.1/32", "dev", "pod")
		machine.ip(b, "link", "set", "pod", "up")
		machine.ip(b, "route", "add", address, "dev", "pod")
		pod.ip(b, "addr", "add", address+"/32", "dev", "eth0")
		pod.ip(b, "link", "set", "eth0", "up")
		pod.ip(b, "route", "add", "169.254.1.1", "dev", "eth0")
		pod.ip(b, "route", "add", "default", "via", "169.254.1.1")
	}
}

// connectLikePlugin connects a pod like the plugin. Its machine has the usual rules: masquerading, and a policy that
// isolates the pod in both directions and accepts the other pod.
func connectLikePlugin(b *testing.B) func(machine, pod *netNamespace, address string) {
	clusters := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.2.0.0/16")}
	return func(machine, pod *netNamespace, address string) {
		ip := netip.MustParseAddr(address)
		p := link.Pair{
			Host:      link.Name(address, "eth0"),
			Inside:    "eth0",
			Addresses: []link.Address{{IP: ip, Gateway: netip.MustParseAddr("169.254.1.1")}},
		}
		if err := machine.runInside(func() error { return p.Create(pod.namespacePath()) }); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := machine.runInside(func() error { return link.Remove(p.Host, p.Inside, "") }); err != nil {
				b.Error(err)
			}
		})
		node := policy.NewNode(func(_ *networkingv1.NetworkPolicy, err error) { b.Error(err) })
		if err := node.SetMachine(policy.Machine{Networks: []netip.Prefix{netip.PrefixFrom(ip, 24).Masked()},
			Links: []string{link.Prefix}}); err != nil {
			b.Fatal(err)
		}
		peer := networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}}
		isolated := &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "isolated"},
			Spec: networkingv1.NetworkPolicySpec{
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
				Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{peer}}},
				Egress:      []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{peer}}}},
		}
		node.SetPolicy("shop", "isolated", isolated)
		node.SetPod(address, &policy.Pod{Namespace: "shop", Name: "pod", Addresses: []netip.Addr{ip}})
		if _, err := node.Update(); err != nil {
			b.Fatal(err)
		}
		outward, err := newMasquerade(clusters, nil)
		if err != nil {
			b.Fatal(err)
		}
		for _, table := range append(node.Tables(), outward.tables...) {
			if table.Family != nft.IPv4 {
				continue
			}
			if err := machine.runInside(func() error { return (&kernel.Kernel{}).Apply(table) }); err != nil {
				b.Fatal(err)
			}
		}
		if out, err := machine.output("nft", "list", "ruleset"); err != nil || len(out) == 0 {
			b.Fatalf("the machine has no rules: %v", err)
		}
	}
}

func (s *netNamespace) output(name string, args ...string) (out []byte, err error) {
	err = s.runInside(func() error {
		out, err = exec.Command(name, args...).Output()
		return err
	})
	return out, err
}

// open opens a connection between the pods, and runs far on the remote end.
func (l podPath) open(b *testing.B, far func(net.Conn)) net.Conn {
	b.Helper()
	var ln net.Listener
	if err := l.pods[1].runInside(func() (err error) {
		ln,
			err = net.Listen("tcp", "10.2.0.1:9")
		return err
	}); err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		if c, err := ln.Accept(); err == nil {
			accepted <- c
		}
	}()
	c, err := l.pods[0].dial(netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.2.0.1"), nft.TCP, 9,
		10*time.Second)
	if err != nil {
		b.Fatal(err)
	}
	existing := <-accepted
	if from := existing.RemoteAddr().(*net.TCPAddr).IP.String(); from != "10.1.0.1" {
		b.Fatalf("the pod is seen as %s", from)
	}
	done := make(chan struct{})
	go func() { defer close(done); far(existing) }()
	b.Cleanup(func() { c.Close(); existing.Close(); <-done })
	return c
}

// connectTracked connects a pod by hand to a machine with connection tracking, which services and policies need, and
// nothing else.
func connectTracked(b *testing.B) func(machine, pod *netNamespace, address string) {
	join := connectBare(b)
	return func(machine, pod *netNamespace, address string) {
		join(machine, pod, address)
		t, err := nft.NewTable(nft.IPv4, "tracking", &nft.Fragment{Chains: map[string]nft.Chain{
			"postrouting": {Hook: &nft.Hook{Type: "nat", Name: "postrouting", Priority: sourceNAT}}}})
		if err != nil {
			b.Fatal(err)
		}
		if err := machine.runInside(func() error { return (&kernel.Kernel{}).Apply(t) }); err != nil {
			b.Fatal(err)
		}
	}
}

const (
	roundTime  = 100 * time.Millisecond
	roundCount = 40
)

// laneResults holds the results of a lane in each of its turns: per second of wall time, and CPU time per byte.
type laneResults struct{ bytes, requests, cpu []float64 }

// measureStream sends as much as possible for a while. Some data is unread at the end, equally for all lanes.
func (current *laneResults) measureStream(b *testing.B, c net.Conn) {
	chunk, sent := make([]byte, 128<<10), 0
	start, before := time.Now(), cpuTime(b)
	for time.Since(start) < roundTime {
		n, err := c.Write(chunk)
		if err != nil {
			b.Fatal(err)
		}
		sent += n
	}
	current.bytes = append(current.bytes, float64(sent)/time.Since(start).Seconds())
	current.cpu = append(current.cpu, (cpuTime(b)-before).Seconds()/float64(sent))
}

// measureRequests repeatedly sends one byte and waits for it to come back.
func (current *laneResults) measureRequests(b *testing.B, c net.Conn) {
	one, requests := make([]byte, 1), 0
	start := time.Now()
	for ; time.Since(start) < roundTime; requests++ {
		if _, err := c.Write(one); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, one); err != nil {
			b.Fatal(err)
		}
	}
	current.requests = append(current.requests, float64(requests)/time.Since(start).Seconds())
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// medianRatio returns the median of the ratios between two lanes in each round, in percent.
func medianRatio(other, list []float64) float64 {
	parts := make([]float64, len(list))
	for i := range list {
		parts[i] = 100 * list[i] / other[i]
	}
	return median(parts)
}

// BenchmarkPodToPod compares pods of two machines with those that are connected by bare pairs of interfaces, and with
// those that also have connection tracking. It measures a TCP stream, and sequential requests of one byte. The lanes
// take short turns, so that other load on the machine affects all of them.
func BenchmarkPodToPod(b *testing.B) {
	lanes := []podPath{newPodPath(b, connectBare(b)), newPodPath(b, connectTracked(b)),
		newPodPath(b, connectLikePlugin(b))}
	const bare, tracked, product = 0, 1, 2
	streams, questions := make([]net.Conn, len(lanes)), make([]net.Conn, len(lanes))
	for i, l := range lanes {
		streams[i] = l.open(b,
			func(c net.Conn) { _, _ = io.CopyBuffer(io.Discard, struct{ io.Reader }{c}, make([]byte, 128<<10)) })
		questions[i] = l.open(b, func(c net.Conn) { _, _ = io.Copy(struct{ io.Writer }{c}, c) })
	}
	of := make([]laneResults, len(lanes))
	for range b.N {
		for range roundCount {
			for i := range lanes {
				of[i].measureStream(b, streams[i])
			}
			for i := range lanes {
				of[i].measureRequests(b, questions[i])
			}
		}
	}
	b.ReportMetric(median(of[bare].bytes)/1e6, "bare-MB/s")
	b.ReportMetric(median(of[product].bytes)/1e6, "MB/s")
	b.ReportMetric(medianRatio(of[bare].bytes, of[product].bytes), "stream-%")
	b.ReportMetric(medianRatio(of[tracked].bytes, of[product].bytes), "tracked-stream-%")
	b.ReportMetric(median(of[bare].requests), "bare-requests/s")
	b.ReportMetric(median(of[product].requests), "requests/s")
	b.ReportMetric(medianRatio(of[bare].requests, of[product].requests), "requests-%")
	b.ReportMetric(medianRatio(of[tracked].requests, of[product].requests), "tracked-requests-%")
	b.ReportMetric(median(of[bare].cpu)*1e12, "bare-cpu-ms/GB")
	b.ReportMetric(median(of[product].cpu)*1e12, "cpu-ms/GB")
}
