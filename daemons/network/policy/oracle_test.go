package policy

import (
	"fmt"
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"pgregory.net/rapid"

	"clusterctl/daemons/nft"
	"clusterctl/tests/isolation"
)

var machine = Machine{Links: []string{"kpod"}, Networks: isolation.Networks}

// tested is a Node together with the slices that it has received.
type tested struct {
	*Node
	told map[[2]string]bool
}

func newNode(t fataler) *tested {
	t.Helper()
	n := NewNode(func(p *networkingv1.NetworkPolicy, err error) { t.Fatalf("%v", err) })
	if err := n.SetMachine(machine); err != nil {
		t.Fatalf("%v", err)
	}
	return &tested{n, map[[2]string]bool{}}
}

// publish passes the slices of the needed groups to the Node.
func (n *tested) publish(t fataler, c *isolation.Cluster) {
	t.Helper()
	needed, is := n.Needed(), map[[2]string]bool{}
	c.Publish(needed, func(group, slice string, addresses []netip.Addr, ports []isolation.Port) {
		is[[2]string{group, slice}] = true
		if err := n.SetSlice(group, slice, &Slice{addresses, portsOf(ports)}); err != nil {
			t.Fatalf("%v", err)
		}
	})
	for s := range n.told {
		if is[s] {
			continue
		}
		if err := n.SetSlice(s[0], s[1], nil); err != nil {
			t.Fatalf("%v", err)
		}
	}
	n.told = is
	n.Hear(needed)
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

func (n *tested) update(t fataler) {
	t.Helper()
	if _, err := n.Update(); err != nil {
		t.Fatalf("%v", err)
	}
}

// change draws a random change of the cluster, and passes it to the Node.
func change(t *rapid.T, c *isolation.Cluster, n *tested) {
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
	number := rapid.IntRange(0, isolation.Numbers-1).Draw(t, "pod")
	uid := fmt.Sprint(number)
	was := c.Pods[uid]
	delete(c.Pods, uid)
	if rapid.IntRange(0, 4).Draw(t, "gone") > 0 {
		c.Pods[uid] = isolation.DrawPod(t, number)
		if was != nil {
			c.Pods[uid].Namespace = was.Namespace
		}
	}
	if number < isolation.Here {
		n.SetPod(uid, podOf(c.Pods[uid]))
	}
}

// packets returns packets between all ends.
func packets(c *isolation.Cluster) (list []packet) {
	var ends []netip.Addr
	for _, m := range c.Pods {
		ends = append(ends, m.Addresses...)
	}
	ends = append(ends, isolation.Outside...)
	for _, from := range ends {
		for _, to := range ends {
			if from.Is4() != to.Is4() {
				continue
			}
			in := "eth0"
			if m := c.At(from); m != nil && m.Here {
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
func TestRulesDecideAsTheSpecificationDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := isolation.DrawCluster(t)
		n := newNode(t)
		kernels := map[nft.Family]*kernel{}
		for _, table := range n.Tables() {
			kernels[table.Family] = newKernel(table.Family)
		}
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			for range rapid.IntRange(1, 8).Draw(t, "changes") {
				change(t, c, n)
				if rapid.IntRange(0, 3).Draw(t, "update") == 0 {
					n.update(t) // some groups are not known yet
					for _, table := range n.Tables() {
						kernels[table.Family].apply(t, table)
					}
				}
			}
			n.publish(t, c)
			n.update(t)
			n.publish(t, c) // some groups are no longer needed
			if n.Waiting() > 0 {
				t.Fatalf("%d pods wait", n.Waiting())
			}
			for _, table := range n.Tables() {
				kernels[table.Family].apply(t, table)
			}
			for _, p := range packets(c) {
				family := nft.IPv6
				if p.from.Is4() {
					family = nft.IPv4
				}
				if got, want := kernels[family].forwards(t, p),
					c.Allows(isolation.Packet{From: p.from, To: p.to, Protocol: p.protocol,
						Port: p.port}); got != want {
					t.Fatalf("%+v passes: %t, should: %t\n%s", p, got, want, n.Tables()[0].Text())
				}
			}
		}
		anew := newNode(t)
		for _, p := range c.Policies {
			anew.SetPolicy(p.Namespace, p.Name, p)
		}
		for uid, m := range c.Pods {
			if m.Here {
				anew.SetPod(uid, podOf(m))
			}
		}
		anew.publish(t, c)
		anew.update(t)
		for i, table := range n.Tables() {
			if got, want := table.Text(), anew.Tables()[i].Text(); got != want {
				t.Fatalf("the table is\n%s\nand made anew\n%s", got, want)
			}
		}
	})
}
