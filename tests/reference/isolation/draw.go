package isolation

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
)

// LocalPods and TotalPods are counts of pods. Pods are numbered from 0 to TotalPods-1. Those below LocalPods are on the
// machine under test.
const LocalPods, TotalPods = 4, 8

// OutsideAddresses are addresses outside the cluster.
var OutsideAddresses = []netip.Addr{
	netip.MustParseAddr(
		"192.0.2.1",
	), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8::1"),
	netip.MustParseAddr("2001:db8::2"),
}

// Networks are the pod networks of the machine under test.
var Networks = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd00:1::/64")}

// DrawCluster draws namespaces without pods and policies.
func DrawCluster(t *rapid.T) *Cluster {
	return &Cluster{
		Namespaces: map[string]map[string]string{"a": drawLabels(t), "b": drawLabels(t)},
		Pods:       map[string]*Pod{},
		Policies:   map[string]*networkingv1.NetworkPolicy{},
	}
}

func drawLabels(t *rapid.T) map[string]string {
	out := map[string]string{}
	for _, k := range []string{"app", "tier"} {
		if v := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, k); v != "" {
			out[k] = v
		}
	}
	return out
}

func drawSelector(t *rapid.T) *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	if rapid.Bool().Draw(t, "by labels") {
		s.MatchLabels = drawLabels(t)
	}
	if rapid.IntRange(0, 3).Draw(t, "by expression") == 0 {
		e := metav1.LabelSelectorRequirement{Key: rapid.SampledFrom([]string{"app", "tier"}).Draw(t, "key"),
			Operator: rapid.SampledFrom([]metav1.LabelSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist"}).
				Draw(t, "operator"),
		}
		if e.Operator == "In" || e.Operator == "NotIn" {
			e.Values = rapid.SampledFrom([][]string{{"x"}, {"y"}, {"x", "y"}}).Draw(t, "values")
		}
		s.MatchExpressions = []metav1.LabelSelectorRequirement{e}
	}
	return s
}

var drawnBlocks = []networkingv1.IPBlock{
	{
		CIDR: "0.0.0.0/0",
	}, {CIDR: "0.0.0.0/0", Except: []string{"10.0.0.0/8"}},
	{CIDR: "10.1.0.0/16", Except: []string{"10.1.0.2/31", "10.1.0.0/29"}},
	{
		CIDR: "10.1.0.2/31",
	}, {CIDR: "10.1.0.4/30"}, {CIDR: "10.2.0.0/16"}, {CIDR: "192.0.2.0/25", Except: []string{"192.0.2.1/32"}},
	{CIDR: "192.0.2.1/32"},
	{
		CIDR: "::/0",
	}, {CIDR: "::/0", Except: []string{"fd00:1::/64", "2001:db8::1/128"}}, {CIDR: "fd00:1::/64"},
	{CIDR: "fd00:1::2/127"}, {CIDR: "255.255.255.255/32"},
}

func drawPeers(t *rapid.T) (list []networkingv1.NetworkPolicyPeer) {
	for range rapid.IntRange(0, 3).Draw(t, "peers") {
		var p networkingv1.NetworkPolicyPeer
		switch rapid.IntRange(0, 3).Draw(t, "peer") {
		case 0:
			p.PodSelector = drawSelector(t)
		case 1:
			p.NamespaceSelector = drawSelector(t)
		case 2:
			p.PodSelector, p.NamespaceSelector = drawSelector(t), drawSelector(t)
		default:
			b := rapid.SampledFrom(drawnBlocks).Draw(t, "block")
			p.IPBlock = &b
		}
		list = append(list, p)
	}
	return list
}

func drawPorts(t *rapid.T) (list []networkingv1.NetworkPolicyPort) {
	for range rapid.IntRange(0, 2).Draw(t, "ports") {
		var p networkingv1.NetworkPolicyPort
		if proto := rapid.SampledFrom([]corev1.Protocol{"", "TCP", "UDP", "SCTP"}).Draw(t, "protocol"); proto != "" {
			p.Protocol = &proto
		}
		switch rapid.IntRange(0, 3).Draw(t, "port") {
		case 0:
		case 1:
			name := intstr.FromString(rapid.SampledFrom([]string{"web", "dns", "other"}).Draw(t, "name"))
			p.Port = &name
		case 2:
			n := intstr.FromInt32(rapid.SampledFrom([]int32{53, 80, 8080}).Draw(t, "number"))
			p.Port = &n
		default:
			n := intstr.FromInt32(rapid.SampledFrom([]int32{1, 53, 80, 81}).Draw(t, "first"))
			end := rapid.SampledFrom([]int32{n.IntVal, 100, 8080, 65535}).Draw(t, "last")
			end = max(end, n.IntVal)
			p.Port, p.EndPort = &n, &end
		}
		list = append(list, p)
	}
	return list
}

// DrawPolicy draws a policy.
func DrawPolicy(t *rapid.T, namespace, name string) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p.Spec.PodSelector = *drawSelector(t)
	p.Spec.PolicyTypes = rapid.SampledFrom([][]networkingv1.PolicyType{nil, {"Ingress"}, {"Egress"},
		{"Ingress", "Egress"}}).
		Draw(t, "types")
	for range rapid.IntRange(0, 2).Draw(t, "ingress rules") {
		p.Spec.Ingress = append(p.Spec.Ingress,
			networkingv1.NetworkPolicyIngressRule{From: drawPeers(t), Ports: drawPorts(t)})
	}
	for range rapid.IntRange(0, 2).Draw(t, "egress rules") {
		p.Spec.Egress = append(p.Spec.Egress,
			networkingv1.NetworkPolicyEgressRule{To: drawPeers(t), Ports: drawPorts(t)})
	}
	return p
}

// DrawPod draws a pod. Its number determines its addresses, so that no two pods have the same.
func DrawPod(t *rapid.T, number int) *Pod {
	m := &Pod{IsLocal: number < LocalPods}
	m.Name, m.Namespace, m.Labels = fmt.Sprint("p", number), rapid.SampledFrom([]string{"a", "b"}).
		Draw(t, "namespace"),
		drawLabels(t)
	four, six := "10.2.0.%d", "fd00:2::%d"
	if m.IsLocal {
		four, six = "10.1.0.%d", "fd00:1::%d"
	}
	m.Addresses = []netip.Addr{
		netip.MustParseAddr(fmt.Sprintf(four, number+1)),
		netip.MustParseAddr(fmt.Sprintf(six, number+1)),
	}
	for range rapid.IntRange(0, 2).Draw(t, "named ports") {
		m.Ports = append(m.Ports, Port{rapid.SampledFrom([]string{"web", "dns"}).Draw(t, "name"),
			rapid.SampledFrom([]uint8{6, 17, 132}).
				Draw(t, "protocol"),
			rapid.SampledFrom([]uint16{53, 80, 8080}).Draw(t, "number")})
	}
	return m
}
