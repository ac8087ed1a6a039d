package network

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"clusterctl/daemons/network/link"
	"clusterctl/daemons/network/policy"
	"clusterctl/daemons/nft"
	"clusterctl/daemons/nft/kernel"
	"clusterctl/tests/reference/isolation"
)

// testNode is a node with pods, and a network beyond it with pods of other nodes and hosts outside of the cluster.
type testNode struct {
	pods   []*netNamespace // pods of this node, by number
	beyond *netNamespace
}

const gateway4, gateway6 = "10.1.0.254", "fd00:1::fe"

var probedPorts = []uint16{53, 80, 8080}

func newTestNode(t *testing.T) *testNode {
	t.Helper()
	var none *netNamespace
	none.ip(t, "link", "set", "lo", "up")
	if err := enableForwarding(isolation.Networks); err != nil {
		t.Fatal(err)
	}
	m := &testNode{beyond: newNetNamespace(t)}
	for i := range isolation.LocalPods {
		s := newNetNamespace(t)
		s.connectPod(t, 0, fmt.Sprintf("10.1.0.%d", i+1), fmt.Sprintf("fd00:1::%d", i+1))
		for _, a := range []string{"10.1.0.%d", "fd00:1::%d"} {
			s.serve(t, netip.MustParseAddr(fmt.Sprintf(a, i+1)), probedPorts...)
		}
		m.pods = append(m.pods, s)
	}
	none.addPair(t, "out", "in")
	none.move(t, "in", m.beyond)
	none.ip(t, "addr", "add", "172.16.0.1/24", "dev", "out")
	none.ip(t, "addr", "add", "fd00:ffff::1/64", "dev", "out", "nodad")
	none.ip(t, "link", "set", "out", "up")
	m.beyond.ip(t, "addr", "add", "172.16.0.2/24", "dev", "in")
	m.beyond.ip(t, "addr", "add", "fd00:ffff::2/64", "dev", "in", "nodad")
	m.beyond.ip(t, "link", "set", "in", "up")
	m.beyond.ip(t, "route", "add", "default", "via", "172.16.0.1")
	m.beyond.ip(t, "-6", "route", "add", "default", "via", "fd00:ffff::1")
	none.ip(t, "route", "add", "default", "via", "172.16.0.2")
	none.ip(t, "-6", "route", "add", "default", "via", "fd00:ffff::2")
	addresses := slices.Clone(isolation.OutsideAddresses)
	for i := isolation.LocalPods; i < isolation.TotalPods; i++ {
		addresses = append(addresses, netip.MustParseAddr(fmt.Sprintf("10.2.0.%d", i+1)),
			netip.MustParseAddr(fmt.Sprintf("fd00:2::%d", i+1)))
	}
	for _, a := range addresses {
		more := []string{"addr", "add", netip.PrefixFrom(a, a.BitLen()).String(), "dev", "lo"}
		if a.Is6() {
			more = append(more, "nodad")
		}
		m.beyond.ip(t, more...)
		m.beyond.serve(t, a, probedPorts...)
	}
	return m
}

// namespaceOf returns the network namespace that has an address.
func (m *testNode) namespaceOf(a netip.Addr) *netNamespace {
	for i, s := range m.pods {
		if a == netip.MustParseAddr(fmt.Sprintf("10.1.0.%d", i+1)) ||
			a == netip.MustParseAddr(fmt.Sprintf("fd00:1::%d", i+1)) {
			return s
		}
	}
	return m.beyond
}

// kernelRules holds a node's rules together with the kernel's tables.
type kernelRules struct {
	*policy.Node
	kernels map[nft.Family]*kernel.Kernel
}

func newKernelRules(t testing.TB) *kernelRules {
	t.Helper()
	r := &kernelRules{
		policy.NewNode(func(_ *networkingv1.NetworkPolicy, err error) { t.Error(err) }),
		map[nft.Family]*kernel.Kernel{},
	}
	if err := r.SetMachine(policy.Machine{Networks: isolation.Networks, Links: []string{link.Prefix}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for f := range r.kernels {
			if err := kernel.Remove(f, policy.TableName); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

func (r *kernelRules) apply(t testing.TB) {
	t.Helper()
	if _, err := r.Update(); err != nil {
		t.Fatal(err)
	}
	for _, table := range r.Tables() {
		if r.kernels[table.Family] == nil {
			r.kernels[table.Family] = &kernel.Kernel{}
		}
		if err := r.kernels[table.Family].Apply(table); err != nil {
			t.Fatal(err)
		}
	}
}

// set passes the changes between two clusters to the rules.
func (r *kernelRules) set(t testing.TB, before, after *isolation.Cluster) {
	t.Helper()
	for key, p := range before.Policies {
		if after.Policies[key] == nil {
			r.SetPolicy(p.Namespace, p.Name, nil)
		}
	}
	for _, p := range after.Policies {
		r.SetPolicy(p.Namespace, p.Name, p)
	}
	for uid, p := range before.Pods {
		if o := after.Pods[uid]; o == nil || o.Namespace != p.Namespace {
			r.SetPod(p.Namespace+uid, nil)
		}
	}
	for uid, p := range after.Pods {
		if !p.IsLocal {
			continue
		}
		r.SetPod(
			p.Namespace+uid,
			&policy.Pod{
				Namespace: p.Namespace,
				Name:      p.Name,
				Labels:    p.Labels,
				Addresses: p.Addresses,
				Ports:     namedPorts(p.Ports),
			},
		)
	}
	needed := r.NeededGroups()
	setGroup := func(group, slice string, addresses []netip.Addr, ports []isolation.Port) {
		if err := r.SetSlice(group, slice, &policy.Slice{Addresses: addresses, Ports: namedPorts(ports)}); err != nil {
			t.Fatal(err)
		}
	}
	before.Publish(needed, func(group, slice string, _ []netip.Addr, _ []isolation.Port) {
		if err := r.SetSlice(group, slice, nil); err != nil {
			t.Fatal(err)
		}
	})
	after.Publish(needed, setGroup)
	r.SetKnownGroups(needed)
	r.apply(t)
}

func namedPorts(list []isolation.Port) (ports []policy.Port) {
	for _, p := range list {
		ports = append(ports, policy.Port(p))
	}
	return ports
}

// drawCluster returns a random cluster in which all pods of the machine exist.
func drawCluster(seed int) *isolation.Cluster {
	return rapid.Custom(func(t *rapid.T) *isolation.Cluster {
		c := isolation.DrawCluster(t)
		for i := range isolation.TotalPods {
			c.Pods[fmt.Sprint(i)] = isolation.DrawPod(t, i)
		}
		for _, namespace := range []string{"a", "b"} {
			for _, name := range []string{"one", "two", "three"} {
				c.Policies[namespace+"/"+name] = isolation.DrawPolicy(t, namespace, name)
			}
		}
		return c
	}).Example(seed)
}

// samplePackets returns packets of one protocol and port between all ends. Each turn uses other values.
func samplePackets(c *isolation.Cluster, turn int) (list []isolation.Packet) {
	ends := slices.Clone(isolation.OutsideAddresses)
	for i := range isolation.TotalPods {
		ends = append(ends, c.Pods[fmt.Sprint(i)].Addresses...)
	}
	for _, from := range ends {
		for _, to := range ends {
			a, b := c.PodAt(from), c.PodAt(to)
			if from.Is4() != to.Is4() || a == b || (a == nil || !a.IsLocal) && (b == nil || !b.IsLocal) {
				continue
			}
			turn++
			list = append(
				list,
				isolation.Packet{
					From:     from,
					To:       to,
					Protocol: []uint8{nft.TCP, nft.UDP}[turn%2],
					Port:     probedPorts[turn/2%len(probedPorts)],
				},
			)
		}
	}
	return list
}

// Real packets are treated as a simple implementation of the specification decides. The rules of each cluster replace
// those of the previous one.
func TestKernelDecidesAsTheSpecification(t *testing.T) {
	m, r := newTestNode(t), newKernelRules(t)
	before := &isolation.Cluster{}
	passed, dropped := 0, 0
	for seed := range 8 {
		c := drawCluster(seed)
		r.set(t, before, c)
		before = c
		packets := samplePackets(c, seed)
		got := make([]bool, len(packets))
		var sending sync.WaitGroup
		free := make(chan struct{}, 64)
		for i, p := range packets {
			free <- struct{}{}
			sending.Go(func() {
				defer func() { <-free }()
				got[i] = m.namespaceOf(p.From).isPassed(p, 200*time.Millisecond)
			})
		}
		sending.Wait()
		for i, p := range packets {
			want := c.Allows(p)
			if want && !got[i] {
				got[i] = m.namespaceOf(p.From).isPassed(p, 10*time.Second)
			}
			if got[i] != want {
				t.Errorf("seed %d: %+v passes: %t, should: %t\n%s", seed, p, got[i], want, r.Tables()[0].Text())
			}
			if want {
				passed++
			} else {
				dropped++
			}
		}
		for _, table := range r.Tables() {
			if exists, err := r.kernels[table.Family].IsIntact(table, true); err != nil || !exists {
				t.Errorf("seed %d: the kernel's rules are others: %v", seed, err)
			}
		}
	}
	if passed < 100 || dropped < 100 {
		t.Errorf("%d packets passed and %d did not: this says little", passed, dropped)
	}
}

// A pod gets no traffic before its rules exist. Open connections continue, and a restarted daemon takes over the rules.
func TestPodTrafficWaitsForItsRulesAndOpenConnectionsContinue(t *testing.T) {
	m, r := newTestNode(t), newKernelRules(t)
	web, other, outside := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr(
		"192.0.2.1")
	r.SetPod("other", policyPod(other))
	r.apply(t)
	// A pod without rules reaches nothing and is not reachable, neither from outside nor from the same machine.
	for _, p := range []isolation.Packet{packetTo(outside, web), packetTo(other, web), packetTo(web, outside),
		packetTo(web, other)} {
		if m.namespaceOf(p.From).isPassed(p, 200*time.Millisecond) {
			t.Errorf("%+v passes, of an unknown pod", p)
		}
	}
	// The machine itself reaches it, for probes.
	var node *netNamespace
	if !node.isPassed(packetTo(netip.MustParseAddr(gateway4), web), 10*time.Second) {
		t.Error("a pod does not answer its machine")
	}
	r.SetPod("web", policyPod(web))
	r.apply(t)
	var open []net.Conn
	for _, p := range []isolation.Packet{packetTo(outside, web), packetTo(other, web)} {
		c, err := m.namespaceOf(p.From).dial(p.From, p.To, p.Protocol, p.Port, 10*time.Second)
		if err != nil {
			t.Fatalf("%+v: %v", p, err)
		}
		defer c.Close()
		open = append(open, c)
	}
	closed := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "closed"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"at": web.String()}}},
	}
	r.SetPolicy("shop", "closed", closed)
	r.apply(t)
	holds := func(when string) {
		t.Helper()
		for _, p := range []isolation.Packet{packetTo(outside, web), packetTo(other, web)} {
			if m.namespaceOf(p.From).isPassed(p, 200*time.Millisecond) {
				t.Errorf("%s: %+v passes", when, p)
			}
		}
		for _, c := range open {
			if !echo(c, 10*time.Second) {
				t.Errorf("%s: a connection that was open has ended", when)
			}
		}
		if p := packetTo(web, outside); !m.namespaceOf(web).isPassed(p, 10*time.Second) {
			t.Errorf("%s: what a pod sends does not pass", when)
		}
	}
	holds("with the policy")
	// A pod uses an address that is not its own.
	m.pods[2].ip(t, "addr", "add", "203.0.113.9/32", "dev", "eth0")
	r.SetPod("third", policyPod(netip.MustParseAddr("10.1.0.3")))
	r.apply(t)
	checkSpoofedSource(t, m, other)
	rebuilt := newKernelRules(t)
	rebuilt.SetPod("other", policyPod(other))
	rebuilt.SetPod("web", policyPod(web))
	rebuilt.SetPolicy("shop", "closed", closed)
	rebuilt.apply(t)
	holds("after a restart")
	rebuilt.SetPolicy("shop", "closed", nil)
	rebuilt.apply(t)
	for _, p := range []isolation.Packet{packetTo(outside, web), packetTo(other, web)} {
		if !m.namespaceOf(p.From).isPassed(p, 10*time.Second) {
			t.Errorf("%+v does not pass without the policy", p)
		}
	}
}

func packetTo(from, to netip.Addr) isolation.Packet {
	return isolation.Packet{From: from, To: to, Protocol: nft.TCP, Port: 80}
}

// policyPod returns a pod of the namespace shop.
func policyPod(a netip.Addr) *policy.Pod {
	return &policy.Pod{
		Namespace: "shop",
		Name:      a.String(),
		Labels:    map[string]string{"at": a.String()},
		Addresses: []netip.Addr{a},
	}
}

// checkSpoofedSource checks that packets of the third pod reach the second one only from its own address.
func checkSpoofedSource(t *testing.T, m *testNode, to netip.Addr) {
	heard := make(chan struct{}, 1)
	var spoofed net.PacketConn
	if err := m.pods[1].runInside(func() (err error) {
		spoofed, err = net.ListenPacket("udp", ":9999")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer spoofed.Close()
	go func() {
		b := make([]byte, 10)
		for {
			_, from, err := spoofed.ReadFrom(b)
			if err != nil {
				return
			}
			if strings.HasPrefix(from.String(), "203.0.113.9:") {
				heard <- struct{}{}
				return
			}
			_, _ = spoofed.WriteTo(b, from)
		}
	}()
	for _, from := range []string{"203.0.113.9", "10.1.0.3"} {
		// in this order: the answer to the second packet shows that the first was delivered or dropped
		c, err := m.pods[2].dial(netip.MustParseAddr(from), to, nft.UDP, 9999, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if from == "10.1.0.3" {
			if !echo(c, 10*time.Second) {
				t.Error("a packet from the address of the pod is lost")
			}
		} else if _, err := c.Write([]byte("hello")); err != nil {
			t.Error(err)
		}
		c.Close()
	}
	select {
	case <-heard:
		t.Error("a pod sends under another address")
	default:
	}
}
