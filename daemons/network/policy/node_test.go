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

var rewrite = flag.Bool("update", false, "rewrite the golden file")

var (
	webAddress, otherAddress = netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.1.0.3")
	client, stranger         = netip.MustParseAddr("10.2.0.5"), netip.MustParseAddr("10.2.0.6")
)

func labelled(v string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": v}}
}

// fromPods returns a policy that accepts packets from pods with the label from to pods with the label to.
func fromPods(name, to, from string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *labelled(to),
			Ingress: []networkingv1.NetworkPolicyIngressRule{
				{From: []networkingv1.NetworkPolicyPeer{{PodSelector: labelled(from)}}},
			},
		},
	}
}

func groupOf(p *networkingv1.NetworkPolicy) string { return peers.Of(p)[0].Name() }

func web(addresses ...netip.Addr) *Pod {
	return &Pod{
		Namespace: "shop",
		Name:      "web",
		Labels:    map[string]string{"app": "web"},
		Addresses: addresses,
		Ports:     []Port{{"http", nft.TCP, 8080}},
	}
}

// reaches reports whether a packet between two addresses passes.
func (k *kernel) reaches(t *testing.T, n *tested, from, to netip.Addr) bool {
	t.Helper()
	k.apply(t, n.Tables()[0])
	return k.forwards(t, packet{from: from, to: to, protocol: nft.TCP, port: 80, in: "eth0"})
}

func TestAPodWaitsForThePeersOfItsPolicies(t *testing.T) {
	n, k := newNode(t), newKernel(nft.IPv4)
	first := fromPods("first", "web", "client")
	n.SetPolicy("shop", "first", first)
	n.SetPod("1", web(webAddress))
	n.update(t)
	if k.reaches(t, n, client, webAddress) || n.Has("1") || n.Waiting() != 1 {
		t.Error("a pod whose peers have not been heard of is there")
	}
	hear := func(p *networkingv1.NetworkPolicy, addresses ...netip.Addr) {
		if err := n.SetSlice(groupOf(p), "s", &Slice{Addresses: addresses}); err != nil {
			t.Fatal(err)
		}
		n.Hear(n.Needed())
		n.update(t)
	}
	hear(first, client)
	if !k.reaches(t, n, client, webAddress) || k.reaches(t, n, stranger, webAddress) || !n.Has("1") {
		t.Error("the policy does not hold")
	}
	// A second policy whose peers are unknown: until they are known, the pod keeps its rules.
	second := fromPods("second", "web", "stranger")
	n.SetPolicy("shop", "second", second)
	n.update(t)
	if !k.reaches(t, n, client, webAddress) || k.reaches(t, n, stranger, webAddress) || n.Has("1") {
		t.Error("the pod has not what it had")
	}
	hear(second, stranger)
	if !k.reaches(t, n, client, webAddress) || !k.reaches(t, n, stranger, webAddress) {
		t.Error("the second policy does not hold")
	}
	// The same applies when a policy changes.
	n.SetPolicy("shop", "first", fromPods("first", "web", "nobody"))
	n.update(t)
	if !k.reaches(t, n, client, webAddress) {
		t.Error("a policy whose new peers are not known has lost its former ones")
	}
	n.Hear(n.Needed())
	n.update(t)
	if k.reaches(t, n, client, webAddress) {
		t.Error("the former peers still get in")
	}
}

func TestAnAddressIsItsNewestPods(t *testing.T) {
	n, k := newNode(t), newKernel(nft.IPv4)
	closed := fromPods("closed", "web", "client")
	closed.Spec.Ingress = nil
	n.SetPolicy("shop", "closed", closed)
	n.SetPod("1", web(webAddress))
	n.update(t)
	if k.reaches(t, n, client, webAddress) {
		t.Error("a pod that nobody may reach is reached")
	}
	next := web(webAddress)
	next.Labels, next.Turn = nil, 1
	n.SetPod("2", next)
	n.update(t)
	if !k.reaches(t, n, client, webAddress) {
		t.Error("a new pod has the rules of the former one with its address")
	}
	// The former pod, which waits for peers, does not keep the address.
	n.SetPod("2", nil)
	n.update(t)
	n.SetPolicy("shop", "more", fromPods("more", "web", "client"))
	n.SetPod("2", next)
	n.update(t)
	if !k.reaches(t, n, client, webAddress) || n.Has("1") {
		t.Error("a pod that waits keeps the address of a new one")
	}
	n.SetPod("2", nil)
	n.Hear(n.Needed())
	n.update(t)
	if k.reaches(t, n, client, webAddress) {
		t.Error("the former pod is open when the new one has gone")
	}
}

func TestWhoIsNotKnownNeitherSendsNorGets(t *testing.T) {
	n := newNode(t)
	n.SetPod("1", web(webAddress, netip.MustParseAddr("fd00:1::2")))
	n.update(t)
	kernels := map[nft.Family]*kernel{}
	for _, table := range n.Tables() {
		kernels[table.Family] = newKernel(table.Family)
		kernels[table.Family].apply(t, table)
	}
	a := netip.MustParseAddr
	for what, c := range map[string]struct {
		p      packet
		passes bool
	}{
		"to a known pod":      {packet{from: client, to: webAddress, in: "eth0"}, true},
		"from a known pod":    {packet{from: webAddress, to: client, in: "kpod1"}, true},
		"to an unknown pod":   {packet{from: client, to: otherAddress, in: "eth0"}, false},
		"from an unknown pod": {packet{from: otherAddress, to: client, in: "kpod1"}, false},
		"an open connection of an unknown pod": {packet{from: otherAddress, to: client, in: "kpod1", known: true},
			true},
		"a pod with somebody's address": {packet{from: client, to: webAddress, in: "kpod1"}, false},
		"a pod with another pod's address": {packet{from: webAddress, to: client, in: "kpod2", astray: true},
			false},
		"a pod in another's conversation": {packet{from: webAddress, to: client, in: "kpod2", astray: true,
			known: true}, false},
		"a pod as who another's speaks with": {packet{from: client, to: webAddress, in: "kpod2", astray: true,
			known: true}, false},
		"a pod with another's, to that one": {packet{from: webAddress, to: webAddress, in: "kpod2", astray: true},
			false},
		"a pod that is led to itself": {packet{from: webAddress, to: webAddress, in: "kpod1"}, true},
		"what does not concern pods":  {packet{from: client, to: a("192.0.2.1"), in: "eth0"}, true},
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
			protocol: nft.ICMPv6, icmp: 136, astray: true}, false},
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
		if got := kernels[family].forwards(t, c.p); got != c.passes {
			t.Errorf("%s: passes %t", what, got)
		}
	}
}

// A pod can only send to its own machine from its own address, even in established connections.
func TestAPodIsHeardByItsMachineUnderItsOwnAddressAlone(t *testing.T) {
	n := newNode(t)
	n.SetPod("1", web(webAddress, netip.MustParseAddr("fd00:1::2")))
	n.update(t)
	kernels := map[nft.Family]*kernel{}
	for _, table := range n.Tables() {
		kernels[table.Family] = newKernel(table.Family)
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
		"a pod with another pod's address": {packet{from: webAddress, to: node, in: "kpod2", astray: true},
			false},
		"a pod with that of one in a conversation": {packet{from: webAddress, to: node, in: "kpod2", astray: true,
			known: true}, false},
		"a pod with somebody's address": {packet{from: client, to: node, in: "kpod1"}, false},
		"a pod with somebody's address of IPv6": {packet{from: a("2001:db8::9"), to: node6, in: "kpod1",
			astray: true}, false},
		"an unknown pod": {packet{from: otherAddress, to: node, in: "kpod1"}, false},
		"an unknown pod that answers": {packet{from: otherAddress, to: node, in: "kpod1", known: true},
			true},
		"somebody else":      {packet{from: client, to: node, in: "eth0"}, true},
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
		if got := kernels[family].takes(t, c.p); got != c.heard {
			t.Errorf("%s: heard %t", what, got)
		}
	}
}

func TestNobodyReachesAnIsolatedPodByAGroupOfReceivers(t *testing.T) {
	n, k := newNode(t), newKernel(nft.IPv4)
	n.SetPod("1", web(webAddress))
	other := web(otherAddress)
	other.Labels = nil
	n.SetPod("2", other)
	n.update(t)
	group := netip.MustParseAddr("224.0.0.251")
	if !k.reaches(t, n, otherAddress, group) {
		t.Error("nobody is isolated, and a group is not reached")
	}
	closed := fromPods("closed", "web", "client")
	closed.Spec.Ingress = nil
	n.SetPolicy("shop", "closed", closed)
	n.update(t)
	if k.reaches(t, n, otherAddress, group) {
		t.Error("an isolated pod is reached as one of a group")
	}
}

func TestAFamilyWithoutPodsHasNoRules(t *testing.T) {
	n := NewNode(nil)
	if err := n.SetMachine(Machine{Links: []string{"kpod"}, Networks: machine.Networks[:1]}); err != nil {
		t.Fatal(err)
	}
	closed := fromPods("closed", "web", "client")
	closed.Spec.Ingress = nil
	n.SetPolicy("shop", "closed", closed)
	n.SetPod("1", web(webAddress, netip.MustParseAddr("fd00:1::2")))
	if _, err := n.Update(); err != nil {
		t.Fatal(err)
	}
	if tables := n.Tables(); len(tables) != 1 || tables[0].Family != nft.IPv4 {
		t.Fatalf("%d tables", len(tables))
	}
	// The second address family is added later.
	if err := n.SetMachine(machine); err != nil {
		t.Fatal(err)
	}
	anew := newNode(t)
	anew.SetPolicy("shop", "closed", closed)
	anew.SetPod("1", web(webAddress, netip.MustParseAddr("fd00:1::2")))
	anew.update(t)
	for i, table := range n.Tables() {
		if got, want := table.Text(), anew.Tables()[i].Text(); got != want {
			t.Errorf("the table is\n%s\nand made anew\n%s", got, want)
		}
	}
}

func TestWhichPodsPoliciesAreAbout(t *testing.T) {
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
func TestTextOfATable(t *testing.T) {
	n := NewNode(nil)
	if err := n.SetMachine(Machine{Links: []string{"kpod"}, Networks: machine.Networks[:1]}); err != nil {
		t.Fatal(err)
	}
	tcp, named, first, last := corev1.ProtocolTCP, intstr.FromString("http"), intstr.FromInt32(8000), int32(8999)
	p := fromPods("allow", "web", "client")
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
			To:    []networkingv1.NetworkPolicyPeer{{PodSelector: labelled("db")}},
			Ports: []networkingv1.NetworkPolicyPort{{Port: &named}},
		},
	}
	n.SetPolicy("shop", "allow", p)
	n.SetPolicy(
		"shop",
		"deny",
		&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "deny"}},
	)
	n.SetPod("1", web(webAddress))
	second := web(otherAddress)
	second.Name = "web-2"
	n.SetPod("2", second)
	n.Hear(n.Needed())
	for _, g := range peers.Of(p) {
		if err := n.SetSlice(g.Name(), "s", &Slice{[]netip.Addr{client}, []Port{{"http", nft.TCP, 8080}}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.Update(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", "table.nft")
	got := n.Tables()[0].Text()
	if *rewrite {
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
func TestAPolicyThatChangesBetweenTwoPodsHoldsForTheNext(t *testing.T) {
	n, k := newNode(t), newKernel(nft.IPv4)
	open := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "one"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *labelled("web"), Ingress: []networkingv1.NetworkPolicyIngressRule{{}},
		},
	}
	n.SetPolicy("shop", "one", open)
	n.SetPod("b", web(webAddress))
	n.update(t)
	if !k.reaches(t, n, client, webAddress) {
		t.Fatal("a policy that lets everybody in lets nobody in")
	}
	n.SetPod("b", nil)
	closed := open.DeepCopy()
	closed.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{
		{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24"}}}},
	}
	n.SetPolicy("shop", "one", closed)
	n.SetPod("a", web(otherAddress)) // pods are updated by UID: this one before the deleted one
	n.update(t)
	if k.reaches(t, n, client, otherAddress) {
		t.Error("the next pod has the rules of the policy as it was before")
	}
}
