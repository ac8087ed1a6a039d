package rules

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"clusterctl/daemons/nft"
)

// A user who may write services in one namespace can choose external addresses freely, but cannot take the traffic of
// another service.
// Proves S12, S28.
func TestExternalAddressesDoNotOverrideServices(t *testing.T) {
	address := func(text string) netip.Addr { return netip.MustParseAddr(text) }
	backend := func(text string) []Endpoint { return []Endpoint{{To: netip.MustParseAddrPort(text)}} }
	victim := Port{
		Namespace: "default",
		Service:   "kubernetes",
		Proto:     nft.TCP,
		Port:      443,
		ClusterIP: address("10.96.0.1"),
		Endpoints: backend("10.99.0.11:6443"),
	}
	shop := Port{
		Namespace: "shop",
		Service:   "web",
		Proto:     nft.TCP,
		Port:      80,
		ClusterIP: address("10.96.0.8"),
		External:  []netip.Addr{address("192.0.2.1")},
		Endpoints: backend("10.244.1.8:80"),
	}
	for name, thief := range map[string]Port{
		"with endpoints": {Namespace: "t", Service: "x", Proto: nft.TCP, Port: 443, ClusterIP: address("10.96.0.9"),
			Endpoints: backend("10.244.1.9:443")},
		"without endpoints": {Namespace: "z", Service: "x", Proto: nft.TCP, Port: 443, ClusterIP: address("10.96.0.9")},
		"another port": {Namespace: "a", Service: "x", Proto: nft.TCP, Port: 8443, ClusterIP: address("10.96.0.9"),
			Endpoints: backend("10.244.1.9:443")},
		"empty, later": {Namespace: "z", Service: "x", Proto: nft.TCP, Port: 80, ClusterIP: address("10.96.0.9")},
	} {
		thief.External = []netip.Addr{victim.ClusterIP, shop.External[0]}
		for order, ports := range map[string][]Port{"the thief first": {thief, victim, shop},
			"the thief last": {victim, shop, thief}} {
			table, err := NewTable(nft.IPv4, Machine{})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range ports {
				if err := table.SetService(p.Namespace+"/"+p.Service, []Port{p}); err != nil {
					t.Fatal(err)
				}
			}
			text := table.Text()
			for _, want := range []string{
				"10.96.0.1 . tcp . 443 . 0 : 10.99.0.11 . 6443", "192.0.2.1 . tcp . 80 : goto " +
					shop.chainName("external"),
			} {
				if !strings.Contains(text, want) {
					t.Errorf("%s, %s: no %q in\n%s", name, order, want, text)
				}
			}
			for _, no := range []string{"10.96.0.1 . tcp . 8443", "10.96.0.1 . tcp . 443 : goto " +
				"reject", "10.96.0.1 . tcp . 443 : goto external", "192.0.2.1 . tcp . 80 : goto reject"} {
				if strings.Contains(text, no) {
					t.Errorf("%s, %s: %q in\n%s", name, order, no, text)
				}
			}
		}
	}
}

// Another service cannot take a load balancer address by listing it as an external IP, with or without endpoints, in
// all modes.
// Proves S12, S28, S29.
func TestExternalAddressesDoNotOverrideLoadBalancers(t *testing.T) {
	at := netip.MustParseAddr("192.0.2.80")
	victim := Port{
		Namespace: "shop",
		Service:   "web",
		Proto:     nft.TCP,
		Port:      80,
		ClusterIP: netip.MustParseAddr("10.96.0.8"),
		External:  []netip.Addr{at},
		Balanced:  []netip.Addr{at},
		Endpoints: []Endpoint{{To: netip.MustParseAddrPort("10.244.1.8:80")}},
	}
	thief := Port{
		Namespace: "a",
		Service:   "x",
		Proto:     nft.TCP,
		Port:      80,
		ClusterIP: netip.MustParseAddr("10.96.0.9"),
		External:  []netip.Addr{at},
		Endpoints: []Endpoint{{To: netip.MustParseAddrPort("10.244.1.9:80")}},
	}
	d := nft.Key{Destination: nft.SingleAddress(at), Protocol: nft.TCP, Port: 80}
	owner := func(c *destinationClaims) string {
		for name, p := range map[string]*Port{"shop/web": &victim, "a/x": &thief} {
			if c.isOwner(d, p) {
				return name
			}
		}
		return "nobody"
	}
	for order, ports := range map[string][]*Port{"the thief first": {&thief, &victim},
		"the thief last": {&victim, &thief}} {
		c := newDestinationClaims(Machine{})
		for i, p := range ports {
			concerned := c.setPorts(p.Namespace+"/"+p.Service, []Port{*p})
			if i == 1 && !slices.Equal(concerned, []string{"a/x", "shop/web"}) {
				t.Errorf("%s: %v are looked at again", order, concerned)
			}
		}
		if got := owner(&c); got != "shop/web" {
			t.Errorf("%s: %s has the address", order, got)
		}
		if concerned := c.setPorts("shop/web", nil); owner(&c) != "a/x" || !slices.Contains(concerned, "a/x") {
			t.Errorf("%s: without its service, %s has the address; %v are looked at again", order, owner(&c), concerned)
		}
		if len(c.balanced) > 0 {
			t.Errorf("%s: left is %v", order, c.balanced)
		}
	}
}

// TestServicesCannotTakeTheEndpointsOfAPIServers checks that packets to the API servers are never translated. A machine
// that cannot reach them would not learn that the Service was deleted.
// Proves S28.
func TestServicesCannotTakeTheEndpointsOfAPIServers(t *testing.T) {
	m := Machine{Pods: testMachine.Pods, API: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:80"),
		netip.MustParseAddrPort("[2001:db8::5]:80")}}
	for name, change := range map[string]func(s *corev1.Service, ip string){
		"external IP": func(s *corev1.Service, ip string) { s.Spec.ExternalIPs = []string{ip} },
		"load balancer": func(s *corev1.Service, ip string) {
			s.Spec.Type, s.Status.LoadBalancer.Ingress = corev1.ServiceTypeLoadBalancer,
				[]corev1.LoadBalancerIngress{{IP: ip}}
		},
		"limited load balancer": func(s *corev1.Service, ip string) {
			s.Spec.Type, s.Status.LoadBalancer.Ingress = corev1.ServiceTypeLoadBalancer,
				[]corev1.LoadBalancerIngress{{IP: ip}}
			s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
		},
	} {
		for _, eps := range [][]*discoveryv1.EndpointSlice{nil, {slice(8080, "10.244.1.2")}} {
			for ip, taken := range map[string]bool{"10.0.0.1": false, "10.0.0.2": true} {
				s := service("web", "10.96.0.7", func(s *corev1.Service) { change(s, ip) })
				ports := Ports(s, eps, nft.IPv4, Location{Node: "me"})
				table, err := NewTable(nft.IPv4, m)
				if err != nil {
					t.Fatal(err)
				}
				relay, err := NewRelayTable(nft.IPv4, m, 1000)
				if err != nil {
					t.Fatal(err)
				}
				chains := NewChains(nft.IPv4, m)
				if err := errors.Join(table.SetService("shop/web", ports), relay.SetService("shop/web", ports),
					chains.SetService("shop/web", ports)); err != nil {
					t.Fatal(err)
				}
				for mode, text := range map[string]string{"nftables": table.Text(), "userspace": relay.Text(),
					"iptables": chainText(chains)} {
					destination := ip + " . tcp . 80 "
					if mode == "iptables" {
						destination = "-d " + ip
					}
					if got := strings.Contains(text, destination); got != taken {
						t.Errorf("%s %s with %d slices, %s: translated: %v, want %v:\n%s", name, ip, len(eps), mode,
							got, taken, text)
					}
				}
			}
		}
	}
}
