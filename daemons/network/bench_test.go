package network

import (
	"fmt"
	"log/slog"
	"net/netip"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/api/peers"
	"clusterctl/daemons/network/link"
	"clusterctl/daemons/network/policy"
	"clusterctl/daemons/nft/kernel"
	"clusterctl/kube/kubernetes/fake"
)

const (
	manyPods          = 10000
	manyPolicies      = 1000
	manyNamespaces    = 100
	localPods         = 110
	addressesPerSlice = 100
)

// largeCluster is a daemon in a large cluster. Its watches are filled by the test.
type largeCluster struct {
	*policyEnforcer
	watch *groupWatch
	pods  []*corev1.Pod // pods of the machine, two per namespace
}

func remotePod(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 128 + byte(i>>16), byte(i >> 8), byte(i)})
}

// namespacePolicy returns one of ten policies of a namespace. It accepts pods of the namespace with a label, pods of
// all namespaces, and some outside addresses.
func namespacePolicy(i, version int) *networkingv1.NetworkPolicy {
	everywhere := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}}
	mine := networkingv1.NetworkPolicyPeer{
		PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": fmt.Sprint(i / manyNamespaces % 3)}},
	}
	outside := networkingv1.NetworkPolicyPeer{
		IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("192.0.%d.0/24", version%200)},
	}
	p := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("ns", i%manyNamespaces), Name: fmt.Sprint("p", i)},
	}
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{
		{From: []networkingv1.NetworkPolicyPeer{mine, outside}}, {From: []networkingv1.NetworkPolicyPeer{everywhere}},
	}
	return p
}

func newLargeCluster(b *testing.B) *largeCluster {
	b.Helper()
	c := &largeCluster{
		policyEnforcer: newPolicyEnforcer(fake.NewClientset(), fake.NewClientset(), "n1", slog.New(slog.DiscardHandler),
			func() tableWriter { return &kernel.Kernel{} }),
	}
	c.policyEnforcer.policies = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	c.policyEnforcer.pods = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	c.pending.setMachine(
		policy.Machine{Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}, Links: []string{link.Prefix}},
	)
	c.watch = &groupWatch{names: map[string]bool{}, stop: func() {}, listed: true, slices: map[string]*watchedSlice{}}
	for i := range manyPolicies {
		p := namespacePolicy(i, 0)
		c.setPolicy(b, p)
		for _, g := range peers.GroupsOf(p) {
			if name := g.Name(); !c.watch.names[name] {
				c.watch.names[name] = true
				first, last := 0, manyPods
				if g.Namespace != "" {
					first, last = i%manyNamespaces*addressesPerSlice, (i%manyNamespaces+1)*addressesPerSlice
				}
				for at := first; at < last; at += addressesPerSlice {
					c.setSlice(name, at, 0)
				}
			}
		}
	}
	for i := range localPods {
		p := newPod(fmt.Sprint("web", i), netip.AddrFrom4([4]byte{10, 1, 0, byte(i + 1)}).String())
		p.Namespace, p.UID = fmt.Sprint("ns", i%manyNamespaces/2), types.UID(fmt.Sprint("uid", i))
		c.pods = append(c.pods, p)
		c.setPod(b, p)
	}
	c.groups.current = []*groupWatch{c.watch}
	for key := range c.watch.slices {
		c.pending.slices.Add(key)
	}
	c.node.SetKnownGroups(c.watch.names)
	c.step(b)
	if !c.isInEffect.Load() {
		b.Fatal("the rules are not there")
	}
	b.Cleanup(func() {
		for f := range c.tables.kernels {
			if err := kernel.Remove(f, policy.TableName); err != nil {
				b.Error(err)
			}
		}
	})
	return c
}

func (c *largeCluster) step(b *testing.B) {
	b.Helper()
	if err := c.sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	if c.groups.next != nil {
		b.Fatal("groups are missing")
	}
}

func (c *largeCluster) setPolicy(b *testing.B, p *networkingv1.NetworkPolicy) {
	b.Helper()
	if err := c.policyEnforcer.policies.Add(p); err != nil {
		b.Fatal(err)
	}
	c.pending.policies.Add(p.Namespace + "/" + p.Name)
}

func (c *largeCluster) setPod(b *testing.B, p *corev1.Pod) {
	b.Helper()
	if err := c.policyEnforcer.pods.Add(p); err != nil {
		b.Fatal(err)
	}
	c.pending.pods.Add(p.Namespace + "/" + p.Name)
}

// setSlice sets the addresses of a group, starting at a number. The version changes one of them.
func (c *largeCluster) setSlice(group string, at, version int) (key string) {
	s := &policy.Slice{}
	for i := range addressesPerSlice {
		s.Addresses = append(s.Addresses, remotePod(at+i))
	}
	s.Addresses[0] = remotePod(at + version%2*manyPods)
	key = fmt.Sprint(group, "-", at)
	c.watch.slices[key] = &watchedSlice{group, s}
	return key
}

// BenchmarkOneChangeOfPolicies measures a single change in a large cluster, including the kernel's work.
func BenchmarkOneChangeOfPolicies(b *testing.B) {
	everywhere := peers.GroupsOf(namespacePolicy(0, 0))[1].Name()
	for _, change := range []struct {
		name string
		mark float64 // milliseconds of CPU time
		does func(b *testing.B, c *largeCluster, i int)
	}{
		{"a policy of pods here", 5,
			func(b *testing.B, c *largeCluster, i int) { c.setPolicy(b, namespacePolicy(i%50, i+1)) }},
		{"a policy of pods elsewhere", .2,
			func(b *testing.B, c *largeCluster, i int) { c.setPolicy(b, namespacePolicy(50+i%50, i+1)) }},
		{"a pod here", 5, func(b *testing.B, c *largeCluster, i int) {
			p := c.pods[i%localPods].DeepCopy()
			p.Labels = map[string]string{"app": fmt.Sprint(i)}
			c.setPod(b, p)
		}},
		{"a pod here comes or goes", 5, func(b *testing.B, c *largeCluster, i int) {
			p := c.pods[i/2%localPods]
			if i%2 == 1 {
				c.setPod(b, p)
				return
			}
			if err := c.policyEnforcer.pods.Delete(p); err != nil {
				b.Fatal(err)
			}
			c.pending.pods.Add(p.Namespace + "/" + p.Name)
		}},
		{"a pod elsewhere that is a peer here", 5, func(_ *testing.B, c *largeCluster, i int) {
			c.pending.slices.Add(c.setSlice(everywhere, i%(manyPods/addressesPerSlice)*addressesPerSlice,
				i/(manyPods/addressesPerSlice)+1))
		}},
	} {
		b.Run(change.name, func(b *testing.B) {
			c := newLargeCluster(b)
			b.ReportAllocs()
			b.ResetTimer()
			before := cpuTime(b)
			for i := range b.N {
				change.does(b, c, i)
				c.step(b)
			}
			took := (cpuTime(b) - before).Seconds() * 1e3 / float64(b.N)
			b.ReportMetric(took, "cpu-ms/op")
			b.ReportMetric(change.mark, "mark-ms")
		})
	}
}

// cpuTime returns the CPU time of this process, including the kernel's work for it.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
