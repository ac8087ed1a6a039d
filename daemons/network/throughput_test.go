package network

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/network/link"
	"clusterctl/daemons/network/policy"
	"clusterctl/daemons/nft"
	"clusterctl/daemons/nft/kernel"
)

// lane is a way from a pod of one machine to one of another, each in a network of its own:
//
//	pod 10.1.0.1 ── machine 10.0.0.1 ── wire ── 10.0.0.2 machine ── pod 10.2.0.1
type lane struct{ machines, pods [2]*stack }

// newLane makes machines with a wire between them and routes to each other's pods, and pods that are joined to them by join.
func newLane(b *testing.B, join func(machine, pod *stack, address string)) lane {
	b.Helper()
	var l lane
	for i := range l.machines {
		l.machines[i], l.pods[i] = newStack(b), newStack(b)
	}
	l.machines[0].pair(b, "wire", "far")
	l.machines[0].move(b, "far", l.machines[1])
	l.machines[1].ip(b, "link", "set", "far", "name", "wire")
	for i, m := range l.machines {
		m.ip(b, "addr", "add", fmt.Sprintf("10.0.0.%d/24", i+1), "dev", "wire")
		m.ip(b, "link", "set", "wire", "up")
		m.ip(b, "route", "add", fmt.Sprintf("10.%d.0.0/24", 2-i), "via", fmt.Sprintf("10.0.0.%d", 2-i))
		if err := m.inside(func() error { return forward([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}) }); err != nil {
			b.Fatal(err)
		}
		join(m, l.pods[i], fmt.Sprintf("10.%d.0.1", i+1))
	}
	return l
}

// byHand joins a pod by a bare pair of interfaces, and by nothing else.
func byHand(b *testing.B) func(machine, pod *stack, address string) {
	return func(machine, pod *stack, address string) {
		machine.pair(b, "pod", "eth0")
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

// asDeclared joins a pod as the plugin does, on a machine with the rules of a network: masquerading, and a policy that isolates the pod both
// ways and lets through the other one.
func asDeclared(b *testing.B) func(machine, pod *stack, address string) {
	clusters := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.2.0.0/16")}
	return func(machine, pod *stack, address string) {
		ip := netip.MustParseAddr(address)
		p := link.Pair{Host: link.Name(address, "eth0"), Inside: "eth0", Addresses: []link.Address{{IP: ip, Gateway: netip.MustParseAddr("169.254.1.1")}}}
		if err := machine.inside(func() error { return p.Make(pod.path()) }); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := machine.inside(func() error { return link.Remove(p.Host, p.Inside, "") }); err != nil {
				b.Error(err)
			}
		})
		node := policy.NewNode(func(_ *networkingv1.NetworkPolicy, err error) { b.Error(err) })
		if err := node.SetMachine(policy.Machine{Networks: []netip.Prefix{netip.PrefixFrom(ip, 24).Masked()}, Links: []string{link.Prefix}}); err != nil {
			b.Fatal(err)
		}
		peer := networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8"}}
		isolated := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "isolated"}, Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{peer}}},
			Egress:      []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{peer}}}}}
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
			if err := machine.inside(func() error { return (&kernel.Kernel{}).Apply(table) }); err != nil {
				b.Fatal(err)
			}
		}
		if out, err := machine.output("nft", "list", "ruleset"); err != nil || len(out) == 0 {
			b.Fatalf("the machine has no rules: %v", err)
		}
	}
}

func (s *stack) output(name string, args ...string) (out []byte, err error) {
	err = s.inside(func() error {
		out, err = exec.Command(name, args...).Output()
		return err
	})
	return out, err
}

// open connects the pods, and has the far one do something with its end.
func (l lane) open(b *testing.B, far func(net.Conn)) net.Conn {
	b.Helper()
	var ln net.Listener
	if err := l.pods[1].inside(func() (err error) { ln, err = net.Listen("tcp", "10.2.0.1:9"); return err }); err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		if c, err := ln.Accept(); err == nil {
			accepted <- c
		}
	}()
	c, err := l.pods[0].dial(netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.2.0.1"), nft.TCP, 9, 10*time.Second)
	if err != nil {
		b.Fatal(err)
	}
	there := <-accepted
	if from := there.RemoteAddr().(*net.TCPAddr).IP.String(); from != "10.1.0.1" {
		b.Fatalf("the pod is seen as %s", from)
	}
	done := make(chan struct{})
	go func() { defer close(done); far(there) }()
	b.Cleanup(func() { c.Close(); there.Close(); <-done })
	return c
}

// carried is what a lane has carried.
type carried struct {
	bytes, requests float64
	streamed, asked time.Duration // clock
	cpu             time.Duration // while streaming
}

const turn = time.Second / 2

// stream sends as much as it can for a while. What has been sent by then has not all been read, which is the same of both lanes.
func (is *carried) stream(b *testing.B, c net.Conn) {
	chunk := make([]byte, 128<<10)
	began, before := time.Now(), cpu(b)
	for time.Since(began) < turn {
		n, err := c.Write(chunk)
		if err != nil {
			b.Fatal(err)
		}
		is.bytes += float64(n)
	}
	is.streamed, is.cpu = is.streamed+time.Since(began), is.cpu+cpu(b)-before
}

// ask sends one byte and waits for it to come back, again and again.
func (is *carried) ask(b *testing.B, c net.Conn) {
	one := make([]byte, 1)
	began := time.Now()
	for time.Since(began) < turn {
		if _, err := c.Write(one); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, one); err != nil {
			b.Fatal(err)
		}
		is.requests++
	}
	is.asked += time.Since(began)
}

// BenchmarkPodToPod compares pods of two machines as they are with ones that are joined by bare pairs of interfaces: a stream of TCP, and
// requests of one byte one after the other. Both lanes have their turns in the same seconds, since what else the machine does concerns both.
func BenchmarkPodToPod(b *testing.B) {
	lanes := [2]lane{newLane(b, byHand(b)), newLane(b, asDeclared(b))}
	var streams, questions [2]net.Conn
	for i, l := range lanes {
		streams[i] = l.open(b, func(c net.Conn) { _, _ = io.CopyBuffer(io.Discard, struct{ io.Reader }{c}, make([]byte, 128<<10)) })
		questions[i] = l.open(b, func(c net.Conn) { _, _ = io.Copy(struct{ io.Writer }{c}, c) })
	}
	var of [2]carried
	for range b.N {
		for turns := range 16 {
			i := turns % 2
			of[i].stream(b, streams[i])
			of[i].ask(b, questions[i])
		}
	}
	var rate, requests, perGB [2]float64
	for i, is := range of {
		rate[i], requests[i] = is.bytes/is.streamed.Seconds()/1e6, is.requests/is.asked.Seconds()
		perGB[i] = is.cpu.Seconds() * 1e3 / (is.bytes / 1e9)
	}
	b.ReportMetric(rate[0], "bare-MB/s")
	b.ReportMetric(rate[1], "MB/s")
	b.ReportMetric(100*rate[1]/rate[0], "stream-%")
	b.ReportMetric(requests[0], "bare-requests/s")
	b.ReportMetric(requests[1], "requests/s")
	b.ReportMetric(100*requests[1]/requests[0], "requests-%")
	b.ReportMetric(perGB[0], "bare-cpu-ms/GB")
	b.ReportMetric(perGB[1], "cpu-ms/GB")
}
