package announce

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/config"
	"clusterctl/daemons/network/bgp"
)

func parsePools(t *testing.T, data map[string]string) []config.Pool {
	t.Helper()
	list, err := config.DecodePools(data)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

const routedPool = `{"addresses":["203.0.113.0/24"],"bgp":{"asn":64512,"peers":[{"address":"192.0.2.254","asn":64513},{"address":"192.0.2.253","asn":64513,"port":1179}],"holdTimeSeconds":9}}`

// Each machine announces the correct addresses to routers.
// Proves S22.
func TestRoutersGetTheAddressesOfTheirPools(t *testing.T) {
	nodes := []*corev1.Node{node("x"), node("y"), node("z", setExcluded)}
	for name, c := range map[string]struct {
		self     string
		services []*corev1.Service
		ready    string
		want     []string
	}{
		"every machine": {"x", []*corev1.Service{service("a", "203.0.113.7")}, "y",
			[]string{"203.0.113.7"}},
		"none that is excluded": {"z", []*corev1.Service{service("a", "203.0.113.7")}, "x", nil},
		"local, with a pod": {"x", []*corev1.Service{service("a", "203.0.113.7", setLocal)}, "x",
			[]string{"203.0.113.7"}},
		"local, without": {"x", []*corev1.Service{service("a", "203.0.113.7", setLocal)}, "y", nil},
		"shared with one that stays local": {"x",
			[]*corev1.Service{service("a", "203.0.113.7"), service("b", "203.0.113.7", setLocal)}, "y", nil},
		"not those of pools without routers": {"x", []*corev1.Service{service("a", "10.0.0.1")}, "x", nil},
	} {
		r := routing{}
		list := parsePools(t, map[string]string{"bgp": routedPool, "arp": `{"addresses":["10.0.0.0/24"]}`})
		peers := r.routedAddresses(list, c.services)
		for peer, got := range Routes(c.self, peers, c.services, nodes, endpointsOn(c.ready)) {
			var text []string
			for _, a := range got {
				text = append(text, a.String())
			}
			if !slices.Equal(text, c.want) {
				t.Errorf("%s: %v gets the routes %v, want %v", name, peer, text, c.want)
			}
			if peer.LocalASN != 64512 || peer.ASN != 64513 || peer.HoldTime.Seconds() != 9 ||
				peer.Address.Port() != 179 && peer.Address.Port() != 1179 {
				t.Errorf("%+v", peer)
			}
		}
		duties := Duties(c.services, nodes, endpointsOn(c.ready), func(a netip.Addr) bool { return len(peers[a]) > 0 })
		if got := len(duties) > 0; got != (name == "not those of pools without routers") {
			t.Errorf("%s: duties %v", name, duties)
		}
	}
}

// An address whose pool is gone stays with its routers until its Service loses it. No machine announces it by ARP in
// the meantime.
func TestAnAddressWithoutAPoolKeepsItsRouters(t *testing.T) {
	r, services := routing{}, []*corev1.Service{service("a", "203.0.113.7")}
	r.peers = r.routedAddresses(parsePools(t, map[string]string{"bgp": routedPool}), services)
	before := r.peers[netip.MustParseAddr("203.0.113.7")]
	if len(before) != 2 {
		t.Fatalf("%v", before)
	}
	if got := r.routedAddresses(nil, services)[netip.MustParseAddr("203.0.113.7")]; !slices.Equal(got, before) {
		t.Errorf("%v, want %v", got, before)
	}
}

func TestBGPIdentityOfAMachine(t *testing.T) {
	n := node("x")
	n.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "x"},
		{Type: corev1.NodeInternalIP, Address: "192.0.2.1"},
		{Type: corev1.NodeInternalIP, Address: "2001:db8::1"},
	}
	got := bgpIdentity("x", []*corev1.Node{n})
	if want := (bgp.Machine{Identifier: netip.MustParseAddr("192.0.2.1"),
		NextHops: []netip.Addr{netip.MustParseAddr("192.0.2.1"),
			netip.MustParseAddr("2001:db8::1")}}); got.Identifier != want.Identifier ||
		!slices.Equal(got.NextHops, want.NextHops) {
		t.Errorf("%v", got)
	}
	n.Status.Addresses = n.Status.Addresses[2:]
	if a, b := bgpIdentity("x", []*corev1.Node{n}), bgpIdentity("y", nil); !a.Identifier.Is4() ||
		a.Identifier == b.Identifier ||
		len(a.NextHops) != 1 {
		t.Errorf("%v, %v", a, b)
	}
}
