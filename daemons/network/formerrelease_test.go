package network

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/network/policy"
	"clusterctl/daemons/nft"
	"clusterctl/daemons/nft/kernel"
	"clusterctl/tests/reference/isolation"
)

// A starting daemon replaces the rules of an earlier release, which had a chain for each direction, in one transaction.
// Nothing of them remains, blocked traffic stays blocked, and connections continue.
func TestRulesOfAFormerReleaseAreReplaced(t *testing.T) {
	m, r := newTestNode(t), newKernelRules(t)
	web, other := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")
	supported := []nft.Field{nft.Source}
	goes := func(action, chain string) nft.Rule {
		return nft.Rule{nft.Decide{Verdict: nft.Verdict{Action: action, Chain: chain}}}
	}
	former, err := nft.NewTable(nft.IPv4, policy.TableName, &nft.Fragment{
		Sets: map[string]nft.Set{"known-pods": {Key: supported}, "egress-pods": {Key: supported, Values: nft.Verdicts}},
		Elements: map[string][]nft.Element{
			"known-pods": {{Key: nft.Key{Source: nft.SingleAddress(web)}},
				{Key: nft.Key{Source: nft.SingleAddress(other)}}},
			"egress-pods": {{Key: nft.Key{Source: nft.SingleAddress(web)},
				Value: nft.VerdictValue("goto", "egress-pods-of-web")}},
		},
		Chains: map[string]nft.Chain{
			"egress": {Hook: &nft.Hook{Type: "filter", Name: "forward"}, Rules: []nft.Rule{
				append(nft.Rule{nft.EstablishedConnection{}}, goes("accept", "")...),
				{nft.Lookup{Map: "egress-pods", Key: supported}}}},
			"ingress": {
				Hook:  &nft.Hook{Type: "filter", Name: "forward", Priority: 1},
				Rules: []nft.Rule{append(nft.Rule{nft.EstablishedConnection{}}, goes("accept", "")...)},
			},
			"egress-pods-of-web": {Rules: []nft.Rule{goes("drop", "")}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := (&kernel.Kernel{}).Apply(former); err != nil {
		t.Fatal(err)
	}
	open, err := m.namespaceOf(other).dial(other, web, nft.TCP, 80, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	closed := isolation.Packet{From: web, To: other, Protocol: nft.TCP, Port: 80}
	if m.namespaceOf(web).isPassed(closed, 200*time.Millisecond) {
		t.Fatal("the former rules do not hold")
	}
	r.SetPolicy(
		"shop",
		"closed",
		&networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "closed"},
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: metav1.LabelSelector{
					MatchLabels: map[string]string{"at": "web"},
				}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}},
		},
	)
	r.SetPod(
		"web",
		&policy.Pod{
			Namespace: "shop",
			Name:      "web",
			Labels:    map[string]string{"at": "web"},
			Addresses: []netip.Addr{web},
		},
	)
	r.SetPod("other", &policy.Pod{Namespace: "shop", Name: "other", Addresses: []netip.Addr{other}})
	r.apply(t)
	if m.namespaceOf(web).isPassed(closed, 200*time.Millisecond) {
		t.Error("what was closed is open")
	}
	if !echo(open, 10*time.Second) {
		t.Error("a connection that was open has ended")
	}
	out, err := exec.Command("nft", "list", "table", "ip", policy.TableName).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, chain := range []string{"chain egress {", "chain ingress {", "egress-pods-of-web"} {
		if strings.Contains(string(out), chain) {
			t.Errorf("%s stays:\n%s", chain, out)
		}
	}
}
