package policy

import (
	"fmt"
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"pgregory.net/rapid"

	"clusterctl/daemons/nft"
	"clusterctl/tests/reference/isolation"
)

var testMachine = Machine{Links: []string{"kpod"}, Networks: isolation.Networks}

// testNode is a Node together with the slices that it has received.
type testNode struct {
	*Node
	passed map[[2]string]bool
}

func newTestNode(t fataler) *testNode {
	t.Helper()
	n := NewNode(func(p *networkingv1.NetworkPolicy, err error) { t.Fatalf("%v", err) })
	if err := n.SetMachine(testMachine); err != nil {
		t.Fatalf("%v", err)
	}
	return &testNode{n, map[[2]string]bool{}}
}

// passSlices passes the slices of the needed groups to the Node.
func (n *testNode) passSlices(t fataler, c *isolation.Cluster) {
	t.Helper()
	needed, got := n.NeededGroups(), map[[2]string]bool{}
	c.Publish(needed, func(group, slice string, addresses []netip.Addr, ports []isolation.Port) {
		got[[2]string{group, slice}] = true
		if err := n.SetSlice(group, slice, &Slice{addresses, portsOf(ports)}); err != nil {
			t.Fatalf("%v", err)
		}
	})
	for s := range n.passed {
		if got[s] {
			continue
		}
		if err := n.SetSlice(s[0], s[1], nil); err != nil {
			t.Fatalf("%v", err)
		}
	}
	n.passed = got
	n.SetKnownGroups(needed)
}

func portsOf(list []isolation.Port) (ports []Port) {
	for _, p := range list {
		ports = append(ports, Port(p))
	}
	return ports
}

func podOf(p *isolation.Pod) *Pod {
	if p == nil {
		return nil
	}
	return &Pod{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Addresses: p.Addresses, Ports: portsOf(p.Ports)}
}

func (n *testNode) updateNode(t fataler) {
	t.Helper()
	if _, err := n.Update(); err != nil {
		t.Fatalf("%v", err)
	}
}

// applyRandomChange draws a random change of the cluster, and passes it to the Node.
func applyRandomChange(t *rapid.T, c *isolation.Cluster, n *testNode) {
	if rapid.Bool().Draw(t, "policy or pod") {
		namespace, name := rapid.SampledFrom([]string{"a", "b"}).
			Draw(t, "namespace"),
			rapid.SampledFrom([]string{"one", "two", "three"}).
				Draw(t, "name")
		key := namespace + "/" + name
		delete(c.Policies, key)
		if rapid.IntRange(0, 3).Draw(t, "gone") > 0 {
			c.Policies[key] = isolation.DrawPolicy(t, namespace, name)
		}
		n.SetPolicy(namespace, name, c.Policies[key])
		return
	}
	number := rapid.IntRange(0, isolation.TotalPods-1).Draw(t, "pod")
	uid := fmt.Sprint(number)
	before := c.Pods[uid]
	delete(c.Pods, uid)
	if rapid.IntRange(0, 4).Draw(t, "gone") > 0 {
		c.Pods[uid] = isolation.DrawPod(t, number)
		if before != nil {
			c.Pods[uid].Namespace = before.Namespace
		}
	}
	if number < isolation.LocalPods {
		n.SetPod(uid, podOf(c.Pods[uid]))
	}
}

// allPackets returns packets between all ends.
func allPackets(c *isolation.Cluster) (list []packet) {
	var ends []netip.Addr
	for _, m := range c.Pods {
		ends = append(ends, m.Addresses...)
	}
	ends = append(ends, isolation.OutsideAddresses...)
	for _, from := range ends {
		for _, to := range ends {
			if from.Is4() != to.Is4() {
				continue
			}
			in := "eth0"
			if m := c.PodAt(from); m != nil && m.IsLocal {
				in = "kpod1"
			}
			for _, protocol := range []uint8{nft.TCP, nft.UDP, nft.SCTP} {
				for _, port := range []uint16{52, 53, 80, 8080, 9000} {
					list = append(list, packet{from: from, to: to, protocol: protocol, port: port, in: in})
				}
			}
			list = append(list, packet{from: from, to: to, protocol: nft.ICMP, in: in})
		}
	}
	return list
}

// The rules decide as a simple implementation of the specification does, after any sequence of changes.
func TestRulesDecideAsTheSpecification(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := isolation.DrawCluster(t)
		n := newTestNode(t)
		kernels := map[nft.Family]*fakeKernel{}
		for _, table := range n.Tables() {
			kernels[table.Family] = newFakeKernel(table.Family)
		}
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			for range rapid.IntRange(1, 8).Draw(t, "changes") {
				applyRandomChange(t, c, n)
				if rapid.IntRange(0, 3).Draw(t, "update") == 0 {
					n.updateNode(t) // some groups are not known yet
					for _, table := range n.Tables() {
						kernels[table.Family].apply(t, table)
					}
				}
			}
			n.passSlices(t, c)
			n.updateNode(t)
			n.passSlices(t, c) // some groups are no longer needed
			if n.PendingPods() > 0 {
				t.Fatalf("%d pods wait", n.PendingPods())
			}
			for _, table := range n.Tables() {
				kernels[table.Family].apply(t, table)
			}
			for _, p := range allPackets(c) {
				family := nft.IPv6
				if p.from.Is4() {
					family = nft.IPv4
				}
				if got, want := kernels[family].isForwarded(t, p),
					c.Allows(isolation.Packet{From: p.from, To: p.to, Protocol: p.protocol,
						Port: p.port}); got != want {
					t.Fatalf("%+v passes: %t, should: %t\n%s", p, got, want, n.Tables()[0].Text())
				}
			}
		}
		rebuilt := newTestNode(t)
		for _, p := range c.Policies {
			rebuilt.SetPolicy(p.Namespace, p.Name, p)
		}
		for uid, m := range c.Pods {
			if m.IsLocal {
				rebuilt.SetPod(uid, podOf(m))
			}
		}
		rebuilt.passSlices(t, c)
		rebuilt.updateNode(t)
		for i, table := range n.Tables() {
			if got, want := table.Text(), rebuilt.Tables()[i].Text(); got != want {
				t.Fatalf("the table is\n%s\nand after a rebuild\n%s", got, want)
			}
		}
	})
}
