package policy

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"clusterctl/daemons/api/peers"
	"clusterctl/daemons/nft"
)

var updateGolden = flag.Bool("update", false, "rewrite the golden file")

var (
	webAddress, otherAddress      = netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.1.0.3")
	clientAddress, unknownAddress = netip.MustParseAddr("10.2.0.5"), netip.MustParseAddr("10.2.0.6")
)

func selectorFor(v string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": v}}
}

// newFromPodsPolicy returns a policy that accepts packets from pods with the label from to pods with the label to.
func newFromPodsPolicy(name, to, from string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *selectorFor(to),
			Ingress: []networkingv1.NetworkPolicyIngressRule{
				{From: []networkingv1.NetworkPolicyPeer{{PodSelector: selectorFor(from)}}},
			},
		},
	}
}

func groupName(p *networkingv1.NetworkPolicy) string { return peers.GroupsOf(p)[0].Name() }

func webPod(addresses ...netip.Addr) *Pod {
	return &Pod{
		Namespace: "shop",
		Name:      "web",
		Labels:    map[string]string{"app": "web"},
		Addresses: addresses,
		Ports:     []Port{{"http", nft.TCP, 8080}},
	}
}

// canReach reports whether a packet between two addresses passes.
func (k *fakeKernel) canReach(t *testing.T, n *testNode, from, to netip.Addr) bool {
	t.Helper()
	k.apply(t, n.Tables()[0])
	return k.isForwarded(t, packet{from: from, to: to, protocol: nft.TCP, port: 80, in: "eth0"})
}

func TestAPodWaitsForTheGroupsOfItsPolicies(t *testing.T) {
	n, k := newTestNode(t), newFakeKernel(nft.IPv4)
	first := newFromPodsPolicy("first", "web", "client")
	n.SetPolicy("shop", "first", first)
	n.SetPod("1", webPod(webAddress))
	n.updateNode(t)
	if k.canReach(t, n, clientAddress, webAddress) || n.IsCurrent("1") || n.PendingPods() != 1 {
		t.Error("a pod whose peers have not been heard of is there")
	}
	hear := func(p *networkingv1.NetworkPolicy, addresses ...netip.Addr) {
		if err := n.SetSlice(groupName(p), "s", &Slice{Addresses: addresses}); err != nil {
			t.Fatal(err)
		}
		n.SetKnownGroups(n.NeededGroups())
		n.updateNode(t)
	}
	hear(first, clientAddress)
	if !k.canReach(t, n, clientAddress, webAddress) || k.canReach(t, n, unknownAddress, webAddress) ||
		!n.IsCurrent("1") {
		t.Error("the policy does not hold")
	}
	// A second policy whose peers are unknown: until they are known, the pod keeps its rules.
	second := newFromPodsPolicy("second", "web", "stranger")
	n.SetPolicy("shop", "second", second)
	n.updateNode(t)
	if !k.canReach(t, n, clientAddress, webAddress) || k.canReach(t, n, unknownAddress, webAddress) ||
		n.IsCurrent("1") {
		t.Error("the pod has not what it had")
	}
	hear(second, unknownAddress)
	if !k.canReach(t, n, clientAddress, webAddress) || !k.canReach(t, n, unknownAddress, webAddress) {
		t.Error("the second policy does not hold")
	}
	// The same applies when a policy changes.
	n.SetPolicy("shop", "first", newFromPodsPolicy("first", "web", "nobody"))
	n.updateNode(t)
	if !k.canReach(t, n, clientAddress, webAddress) {
		t.Error("a policy whose new peers are not known has lost its former ones")
	}
	n.SetKnownGroups(n.NeededGroups())
	n.updateNode(t)
	if k.canReach(t, n, clientAddress, webAddress) {
		t.Error("the former peers still get in")
	}
}

func TestAnAddressBelongsToItsNewestPod(t *testing.T) {
	n, k := newTestNode(t), newFakeKernel(nft.IPv4)
	closed := newFromPodsPolicy("closed", "web", "client")
	closed.Spec.Ingress = nil
	n.SetPolicy("shop", "closed", closed)
	n.SetPod("1", webPod(webAddress))
	n.updateNode(t)
	if k.canReach(t, n, clientAddress, webAddress) {
		t.Error("an isolated pod is reached")
	}
	next := webPod(webAddress)
	next.Labels, next.Turn = nil, 1
	n.SetPod("2", next)
	n.updateNode(t)
	if !k.canReach(t, n, clientAddress, webAddress) {
		t.Error("a new pod has the rules of the former one with its address")
	}
	// The former pod, which waits for peers, does not keep the address.
	n.SetPod("2", nil)
	n.updateNode(t)
	n.SetPolicy("shop", "more", newFromPodsPolicy("more", "web", "client"))
	n.SetPod("2", next)
	n.updateNode(t)
	if !k.canReach(t, n, clientAddress, webAddress) || n.IsCurrent("1") {
		t.Error("a pod that waits keeps the address of a new one")
	}
	n.SetPod("2", nil)
	n.SetKnownGroups(n.NeededGroups())
	n.updateNode(t)
	if k.canReach(t, n, clientAddress, webAddress) {
		t.Error("the former pod is open when the new one has gone")
	}
}

func TestUnknownAddressesNeitherSendNorReceive(t *testing.T) {
	n := newTestNode(t)
	n.SetPod("1", webPod(webAddress, netip.MustParseAddr("fd00:1::2")))
	n.updateNode(t)
	kernels := map[nft.Family]*fakeKernel{}
	for _, table := range n.Tables() {
		kernels[table.Family] = newFakeKernel(table.Family)
		kernels[table.Family].apply(t, table)
	}
	a := netip.MustParseAddr
	for what, c := range map[string]struct {
		p      packet
		passes bool
	}{
		"to a known pod":      {packet{from: clientAddress, to: webAddress, in: "eth0"}, true},
		"from a known pod":    {packet{from: webAddress, to: clientAddress, in: "kpod1"}, true},
		"to an unknown pod":   {packet{from: clientAddress, to: otherAddress, in: "eth0"}, false},
		"from an unknown pod": {packet{from: otherAddress, to: clientAddress, in: "kpod1"}, false},
		"an open connection of an unknown pod": {packet{from: otherAddress, to: clientAddress, in: "kpod1",
			isKnown: true},
			true},
		"a pod with somebody's address": {packet{from: clientAddress, to: webAddress, in: "kpod1"}, false},
		"a pod with another pod's address": {packet{from: webAddress, to: clientAddress, in: "kpod2",
			hasWrongInterface: true},
			false},
		"a pod in another's conversation": {packet{from: webAddress, to: clientAddress, in: "kpod2",
			hasWrongInterface: true,
			isKnown:           true}, false},
		"a pod as who another's speaks with": {packet{from: clientAddress, to: webAddress, in: "kpod2",
			hasWrongInterface: true,
			isKnown:           true}, false},
		"a pod with another's, to that one": {packet{from: webAddress, to: webAddress, in: "kpod2",
			hasWrongInterface: true},
			false},
		"a pod that is led to itself": {packet{from: webAddress, to: webAddress, in: "kpod1"}, true},
		"what does not concern pods":  {packet{from: clientAddress, to: a("192.0.2.1"), in: "eth0"}, true},
		"by a link's own addresses": {packet{from: a("fe80::1"), to: a("fe80::2"), in: "kpod1",
			protocol: nft.TCP}, false},
		"a neighbour that a bridge leads to": {packet{from: a("fd00:1::3"), to: a("ff02::1:ff00:2"), in: "cni0",
			protocol: nft.ICMPv6, icmp: 135, onLink: true}, true},
		"a neighbour's answer over a bridge": {packet{from: a("fd00:1::3"), to: a("fd00:1::2"), in: "cni0",
			protocol: nft.ICMPv6, icmp: 136, onLink: true}, true},
		"a routed search for a neighbour": {packet{from: a("fd00:1::3"), to: a("fd00:1::2"), in: "kpod1",
			protocol: nft.ICMPv6, icmp: 135}, false},
		"a routed router's notice": {packet{from: a("2001:db8::1"), to: a("fd00:1::3"), in: "eth0",
			protocol: nft.ICMPv6, icmp: 134}, false},
		"a routed answer with another's sender": {packet{from: a("fd00:1::2"), to: a("2001:db8::1"), in: "kpod2",
			protocol: nft.ICMPv6, icmp: 136, hasWrongInterface: true}, false},
		"who asks whether somebody is there": {packet{from: a("fd00:1::3"), to: a("fd00:1::2"), in: "kpod1",
			protocol: nft.ICMPv6, icmp: 128}, false},
		"to everybody, when all pods are open": {packet{from: webAddress, to: a("224.0.0.251"), in: "kpod1"}, true},
		"to a known pod of the second family":  {packet{from: a("2001:db8::1"), to: a("fd00:1::2"), in: "eth0"}, true},
		"to an unknown pod of the other family": {packet{from: a("2001:db8::1"), to: a("fd00:1::3"), in: "eth0"},
			false},
	} {
		family := nft.IPv6
		if c.p.from.Is4() {
			family = nft.IPv4
		}
		if got := kernels[family].isForwarded(t, c.p); got != c.passes {
			t.Errorf("%s: passes %t", what, got)
		}
	}
}

// A pod can only send to its own machine from its own address, even in established connections.
func TestTheMachineAcceptsAPodOnlyWithItsOwnAddress(t *testing.T) {
	n := newTestNode(t)
	n.SetPod("1", webPod(webAddress, netip.MustParseAddr("fd00:1::2")))
	n.updateNode(t)
	kernels := map[nft.Family]*fakeKernel{}
	for _, table := range n.Tables() {
		kernels[table.Family] = newFakeKernel(table.Family)
		kernels[table.Family].apply(t, table)
	}
	a := netip.MustParseAddr
	node, node6 := a("192.0.2.1"), a("2001:db8::1")
	for what, c := range map[string]struct {
		p     packet
		heard bool
	}{
		"a known pod":                      {packet{from: webAddress, to: node, in: "kpod1"}, true},
		"a known pod of the second family": {packet{from: a("fd00:1::2"), to: node6, in: "kpod1"}, true},
		"a pod with another pod's address": {packet{from: webAddress, to: node, in: "kpod2", hasWrongInterface: true},
			false},
		"a pod with that of one in a conversation": {packet{from: webAddress, to: node, in: "kpod2",
			hasWrongInterface: true,
			isKnown:           true}, false},
		"a pod with somebody's address": {packet{from: clientAddress, to: node, in: "kpod1"}, false},
		"a pod with somebody's address of IPv6": {packet{from: a("2001:db8::9"), to: node6, in: "kpod1",
			hasWrongInterface: true}, false},
		"an unknown pod": {packet{from: otherAddress, to: node, in: "kpod1"}, false},
		"an unknown pod that answers": {packet{from: otherAddress, to: node, in: "kpod1", isKnown: true},
			true},
		"somebody else":      {packet{from: clientAddress, to: node, in: "eth0"}, true},
		"the machine itself": {packet{from: node, to: node, in: "lo"}, true},
		"a pod that asks where the machine is": {packet{from: a("fe80::1"), to: a("ff02::1:ff00:2"), in: "kpod1",
			protocol: nft.ICMPv6, icmp: 135, onLink: true}, true},
		"a routed search for the machine": {packet{from: a("fd00:1::3"), to: node6, in: "kpod1",
			protocol: nft.ICMPv6, icmp: 135}, false},
		"a pod by the link's own address": {packet{from: a("fe80::1"), to: a("fe80::2"), in: "kpod1",
			protocol: nft.TCP}, true},
		"a pod that asks whether somebody is there": {packet{from: a("fd00:1::3"), to: node6, in: "kpod1",
			protocol: nft.ICMPv6, icmp: 128}, false},
	} {
		family := nft.IPv6
		if c.p.from.Is4() {
			family = nft.IPv4
		}
		if got := kernels[family].isAccepted(t, c.p); got != c.heard {
			t.Errorf("%s: heard %t", what, got)
		}
	}
}

func TestMulticastDoesNotReachAnIsolatedPod(t *testing.T) {
	n, k := newTestNode(t), newFakeKernel(nft.IPv4)
	n.SetPod("1", webPod(webAddress))
	other := webPod(otherAddress)
	other.Labels = nil
	n.SetPod("2", other)
	n.updateNode(t)
	group := netip.MustParseAddr("224.0.0.251")
	if !k.canReach(t, n, otherAddress, group) {
		t.Error("no pod is isolated, and a group is not reached")
	}
	closed := newFromPodsPolicy("closed", "web", "client")
	closed.Spec.Ingress = nil
	n.SetPolicy("shop", "closed", closed)
	n.updateNode(t)
	if k.canReach(t, n, otherAddress, group) {
		t.Error("an isolated pod is reached as one of a group")
	}
}

func TestAFamilyWithoutPodsHasNoRules(t *testing.T) {
	n := NewNode(nil)
	if err := n.SetMachine(Machine{Links: []string{"kpod"}, Networks: testMachine.Networks[:1]}); err != nil {
		t.Fatal(err)
	}
	closed := newFromPodsPolicy("closed", "web", "client")
	closed.Spec.Ingress = nil
	n.SetPolicy("shop", "closed", closed)
	n.SetPod("1", webPod(webAddress, netip.MustParseAddr("fd00:1::2")))
	if _, err := n.Update(); err != nil {
		t.Fatal(err)
	}
	if tables := n.Tables(); len(tables) != 1 || tables[0].Family != nft.IPv4 {
		t.Fatalf("%d tables", len(tables))
	}
	// The second address family is added later.
	if err := n.SetMachine(testMachine); err != nil {
		t.Fatal(err)
	}
	rebuilt := newTestNode(t)
	rebuilt.SetPolicy("shop", "closed", closed)
	rebuilt.SetPod("1", webPod(webAddress, netip.MustParseAddr("fd00:1::2")))
	rebuilt.updateNode(t)
	for i, table := range n.Tables() {
		if got, want := table.Text(), rebuilt.Tables()[i].Text(); got != want {
			t.Errorf("the table is\n%s\nand after a rebuild\n%s", got, want)
		}
	}
}

func TestPoliciesSelectTheirPods(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{
				{
					Ports: []corev1.ContainerPort{
						{Name: "http", ContainerPort: 80},
						{ContainerPort: 81},
						{Name: "dns", ContainerPort: 53, Protocol: "UDP"},
					},
				},
			},
			InitContainers: []corev1.Container{
				{Ports: []corev1.ContainerPort{{Name: "once", ContainerPort: 82}}},
				{RestartPolicy: &always, Ports: []corev1.ContainerPort{{Name: "beside", ContainerPort: 83}}},
			},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.1.0.2"}, {IP: "fd00:1::2"}}},
	}
	got, ok := PodOf(p)
	if want := []Port{{"http", nft.TCP, 80}, {"dns", nft.UDP, 53}, {"beside", nft.TCP, 83}}; !ok ||
		!slices.Equal(got.Ports, want) ||
		len(got.Addresses) != 2 {
		t.Errorf("%t %+v", ok, got)
	}
	host := p.DeepCopy()
	host.Spec.HostNetwork = true
	ended := p.DeepCopy()
	ended.Status.Phase = corev1.PodFailed
	for _, p := range []*corev1.Pod{host, ended} {
		if _, ok := PodOf(p); ok {
			t.Errorf("policies are about a pod with %+v", p.Status)
		}
	}
}

// The text is what nft prints.
func TestTableMatchesTheGoldenFile(t *testing.T) {
	n := NewNode(nil)
	if err := n.SetMachine(Machine{Links: []string{"kpod"}, Networks: testMachine.Networks[:1]}); err != nil {
		t.Fatal(err)
	}
	tcp, named, first, last := corev1.ProtocolTCP, intstr.FromString("http"), intstr.FromInt32(8000), int32(8999)
	p := newFromPodsPolicy("allow", "web", "client")
	p.Spec.Ingress[0].Ports = []networkingv1.NetworkPolicyPort{
		{Protocol: &tcp, Port: &named},
		{Port: &first, EndPort: &last},
	}
	p.Spec.Ingress = append(
		p.Spec.Ingress,
		networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{
			{
				IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24", Except: []string{"192.0.2.64/26"}},
			}, {IPBlock: &networkingv1.IPBlock{CIDR: "192.0.3.0/24"}}}},
	)
	p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{
		{
			To:    []networkingv1.NetworkPolicyPeer{{PodSelector: selectorFor("db")}},
			Ports: []networkingv1.NetworkPolicyPort{{Port: &named}},
		},
	}
	n.SetPolicy("shop", "allow", p)
	n.SetPolicy("shop", "deny",
		&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deny"}})
	n.SetPod("1", webPod(webAddress))
	second := webPod(otherAddress)
	second.Name = "web-2"
	n.SetPod("2", second)
	n.SetKnownGroups(n.NeededGroups())
	for _, g := range peers.GroupsOf(p) {
		if err := n.SetSlice(g.Name(), "s",
			&Slice{[]netip.Addr{clientAddress}, []Port{{"http", nft.TCP, 8080}}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.Update(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "table.nft")
	got := n.Tables()[0].Text()
	if *updateGolden {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the table is\n%s", got)
	}
}

// A policy changes after the last pod of its namespace was deleted and before Update, and then a new pod comes.
func TestAChangedPolicyAppliesToTheNextPod(t *testing.T) {
	n, k := newTestNode(t), newFakeKernel(nft.IPv4)
	open := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "one"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *selectorFor("web"), Ingress: []networkingv1.NetworkPolicyIngressRule{{}},
		},
	}
	n.SetPolicy("shop", "one", open)
	n.SetPod("b", webPod(webAddress))
	n.updateNode(t)
	if !k.canReach(t, n, clientAddress, webAddress) {
		t.Fatal("a policy that allows all peers allows none")
	}
	n.SetPod("b", nil)
	closed := open.DeepCopy()
	closed.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{
		{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24"}}}},
	}
	n.SetPolicy("shop", "one", closed)
	n.SetPod("a", webPod(otherAddress)) // pods are updated by UID: this one before the deleted one
	n.updateNode(t)
	if k.canReach(t, n, clientAddress, otherAddress) {
		t.Error("the next pod has the rules of the policy as it was before")
	}
}
