package network

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func machine(name, cidr, ip string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: cidr}}
	if ip != "" {
		n.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: name},
			{Type: corev1.NodeInternalIP, Address: ip},
		}
	}
	return n
}

func route(to, via string) Route {
	return Route{To: netip.MustParsePrefix(to), Via: netip.MustParseAddr(via)}
}

// Proves S27.
func TestEachOtherNodeHasARoute(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes []*corev1.Node
		want  []Route
	}{
		{"alone", []*corev1.Node{machine("a", "10.244.0.0/24", "10.0.0.1")}, nil},
		{"three", []*corev1.Node{machine("a", "10.244.0.0/24", "10.0.0.1"), machine("c", "10.244.2.0/24", "10.0.0.3"),
			machine("b", "10.244.1.0/24", "10.0.0.2")},
			[]Route{route("10.244.1.0/24", "10.0.0.2"), route("10.244.2.0/24", "10.0.0.3")}},
		{"one has no network yet",
			[]*corev1.Node{machine("a", "10.244.0.0/24", "10.0.0.1"), machine("b", "", "10.0.0.2")}, nil},
		{"one has no address",
			[]*corev1.Node{machine("a", "10.244.0.0/24", "10.0.0.1"), machine("b", "10.244.1.0/24", "")}, nil},
		{"one claims ours", []*corev1.Node{machine("a", "10.244.0.0/24", "10.0.0.1"),
			machine("b", "10.244.0.0/24", "10.0.0.2")}, nil},
		{"two claim the same",
			[]*corev1.Node{machine("a", "10.244.0.0/24", "10.0.0.1"), machine("c", "10.244.1.0/24", "10.0.0.3"),
				machine("b", "10.244.1.0/24", "10.0.0.2")},
			[]Route{route("10.244.1.0/24", "10.0.0.2")}},
		{"nonsense", []*corev1.Node{machine("a", "10.244.0.0/24", "10.0.0.1"), machine("b", "x", "10.0.0.2")}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := NewPlan("a", c.nodes)
			for i := range got.Routes {
				got.Routes[i].node = ""
			}
			if !reflect.DeepEqual(got.Routes, c.want) {
				t.Errorf("got %v, want %v", got.Routes, c.want)
			}
			if len(got.PodCIDRs) != 1 || got.PodCIDRs[0].String() != "10.244.0.0/24" {
				t.Errorf("our own network is %v", got.PodCIDRs)
			}
		})
	}
}

func TestDiffResultsInTheWantedRoutes(t *testing.T) {
	some := rapid.Custom(func(t *rapid.T) []Route {
		byNet := map[byte]Route{}
		for range rapid.IntRange(0, 6).Draw(t, "n") {
			to, via := rapid.ByteRange(0, 5).Draw(t, "to"), rapid.ByteRange(1, 3).Draw(t, "via")
			byNet[to] = Route{
				To:  netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, to, 0}), 24),
				Via: netip.AddrFrom4([4]byte{10, 0, 0, via}),
			}
		}
		var list []Route
		for _, r := range byNet {
			list = append(list, r)
		}
		return list
	})
	rapid.Check(t, func(t *rapid.T) {
		current, want := some.Draw(t, "have"), some.Draw(t, "want")
		add, remove := Diff(current, want)
		got := map[netip.Prefix]netip.Addr{}
		for _, r := range current {
			got[r.To] = r.Via
		}
		for _, r := range remove {
			delete(got, r.To)
		}
		for _, r := range add {
			got[r.To] = r.Via
		}
		if len(got) != len(want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		for _, r := range want {
			if got[r.To] != r.Via {
				t.Fatalf("got %v, want %v", got, want)
			}
		}
		if add, remove := Diff(want, want); len(add)+len(remove) > 0 {
			t.Fatalf("no change adds %v and removes %v", add, remove)
		}
	})
}

func TestPodsGetTheSmallestMTUUnlessOneIsConfigured(t *testing.T) {
	for _, c := range []struct{ configured, machine, overlay, want int }{
		{1400, 1500, 1450, 1400},
		{9000, 1500, 0, 9000},
		{0, 1500, 0, 1500},
		{0, 1500, 1450, 1450},
		{0, 1400, 1450, 1400},
		{0, 0, 1450, 1450},
		{0, 0, 0, 0},
	} {
		if got := podMTU(c.configured, c.machine, c.overlay); got != c.want {
			t.Errorf("podMTU(%d, %d, %d) = %d, want %d", c.configured, c.machine, c.overlay, got, c.want)
		}
	}
}

func TestConflistIsAcceptedByThePlugins(t *testing.T) {
	got, err := Conflist([]netip.Prefix{netip.MustParsePrefix("10.244.3.0/24")}, 1450)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"subnet": "10.244.3.0/24"`, `"mtu": 1450`, `"type": "portmap"`, `"type": "podlink"`} {
		if !strings.Contains(string(got), want) {
			t.Errorf("it lacks %s:\n%s", want, got)
		}
	}
	if _, err := Conflist(nil, 0); err == nil {
		t.Error("a node without a pod network got a configuration")
	}
}

func TestFileIsReplacedOnlyWhenItDiffers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "net.d", confName)
	if err := writeFile(path, []byte("a")); err != nil {
		t.Fatal(err)
	}
	first, _ := os.Stat(path)
	if err := writeFile(path, []byte("a")); err != nil {
		t.Fatal(err)
	}
	if second, _ := os.Stat(path); !os.SameFile(first, second) {
		t.Error("the same content was written again")
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}
