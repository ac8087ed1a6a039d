package nodecidr

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// Proves S04.
func TestNextSubnetReturnsTheFirstFreeSubnet(t *testing.T) {
	for _, c := range []struct {
		network string
		bits    int
		used    []string
		want    string
	}{
		{"10.244.0.0/16", 24, nil, "10.244.0.0/24"},
		{"10.244.0.0/16", 24, []string{"10.244.0.0/24"}, "10.244.1.0/24"},
		{"10.244.0.0/16", 24, []string{"10.244.0.0/24", "10.244.2.0/24"}, "10.244.1.0/24"},
		{"10.0.0.0/30", 31, []string{"10.0.0.0/31", "10.0.0.2/31"}, ""},
		{"255.255.255.0/24", 25, []string{"255.255.255.0/25", "255.255.255.128/25"}, ""},
		{"fd00::/48", 64, []string{"fd00::/64"}, "fd00:0:0:1::/64"},
		{"10.0.0.0/16", 8, nil, ""},
		{"nonsense", 24, nil, ""},
	} {
		used := map[string]bool{}
		for _, u := range c.used {
			used[u] = true
		}
		got, err := NextSubnet(c.network, c.bits, "", func(piece string) bool { return used[piece] })
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("Next(%s, %d, %v) = %q, %v; want %q", c.network, c.bits, c.used, got, err, c.want)
		}
	}
}

// Proves S04.
func TestTheSearchContinuesAfterTheLastSubnet(t *testing.T) {
	used := map[string]bool{"10.0.2.0/24": true, "10.0.3.0/24": true}
	for last, want := range map[string]string{"": "10.0.0.0/24", "10.0.1.0/24": "10.0.1.0/24",
		"10.0.2.0/24": "10.0.0.0/24", "10.9.0.0/24": "10.0.0.0/24", "10.0.0.0/25": "10.0.0.0/24"} {
		if got, err := NextSubnet("10.0.0.0/22", 24, last,
			func(piece string) bool { return used[piece] }); got != want ||
			err != nil {
			t.Errorf("after %q: %q, %v; want %q", last, got, err, want)
		}
	}
}

// Proves S04.
func TestNextSubnetNeverAssignsASubnetTwice(t *testing.T) {
	used := map[string]bool{}
	taken, last := func(piece string) bool { return used[piece] }, "10.244.200.0/24"
	for range 256 {
		piece, err := NextSubnet("10.244.0.0/16", 24, last, taken)
		if err != nil {
			t.Fatal(err)
		}
		if used[piece] || !netip.MustParsePrefix("10.244.0.0/16").Overlaps(netip.MustParsePrefix(piece)) {
			t.Fatalf("piece %s after %v", piece, used)
		}
		used[piece], last = true, piece
	}
	if piece, err := NextSubnet("10.244.0.0/16", 24, last, taken); err == nil {
		t.Fatalf("a 257th piece: %s", piece)
	}
}

// In a dual-stack cluster, every node gets a subnet of each network, in the order of the networks, and no subnet is
// assigned twice.
// Proves S27.
func TestNodesGetASubnetOfEachFamily(t *testing.T) {
	cfg := config.ControllerManager{
		ClusterCIDR:          []string{"10.244.0.0/16", "fd00:244::/48"},
		AllocateNodeCIDRs:    true,
		NodeCIDRMaskSize:     24,
		NodeCIDRMaskSizeIPv6: 64,
	}
	client := fake.NewClientset(
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "former"},
			Spec: corev1.NodeSpec{
				PodCIDR:  "10.244.0.0/24",
				PodCIDRs: []string{"10.244.0.0/24", "fd00:244:0:1::/64"},
			},
		},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}},
	)
	factory := informers.New(client)
	n := New(loop.Context{Client: client, Informers: factory, Config: cfg}).(*controller)
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSync(t.Context().Done())
	for _, c := range []struct{ node, want string }{
		{"a", "10.244.1.0/24 fd00:244::/64"}, {"b", "10.244.2.0/24 " +
			"fd00:244:0:2::/64"}, {"a", "10.244.1.0/24 fd00:244::/64"}, {"former", "10.244.0.0/24 fd00:244:0:1::/64"},
	} {
		if err := n.sync(t.Context(), c.node); err != nil {
			t.Fatal(err)
		}
		current, err := client.CoreV1().Nodes().Get(t.Context(), c.node, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(current.Spec.PodCIDRs, " "); got != c.want ||
			current.Spec.PodCIDR != current.Spec.PodCIDRs[0] {
			t.Errorf("%s has %s and %s, should have %s", c.node, current.Spec.PodCIDR, got, c.want)
		}
	}
	// What the cache shows is not recorded a second time, and stays in use.
	shown := func() bool {
		a, err := n.nodes.Get("a")
		return err == nil && a.Spec.PodCIDR != ""
	}
	for !shown() {
		if t.Context().Err() != nil {
			t.Fatal("the cache never shows the node's piece")
		}
		time.Sleep(time.Millisecond)
	}
	if err := n.sync(t.Context(), "a"); err != nil || len(n.subnetsByNode["a"]) > 0 ||
		n.nodeBySubnet["10.244.1.0/24"] != "" ||
		!n.isUsed("10.244.1.0/24") {
		t.Errorf("%v, given are %v of %v, used: %t", err, n.subnetsByNode, n.nodeBySubnet, n.isUsed("10.244.1.0/24"))
	}
}
