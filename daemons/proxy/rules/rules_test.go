package rules

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"clusterctl/daemons/nft"
)

var updateGolden = flag.Bool("update", false, "rewrite the golden files")

func service(name, ip string, change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ServiceSpec{
		ClusterIP: ip, Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
	}}
	if change != nil {
		change(s)
	}
	return s
}

// slice returns an EndpointSlice of addresses. The suffix ! means on this node, ~ means terminating but serving, and -
// means not serving any more.
func slice(port int32, addrs ...string) *discoveryv1.EndpointSlice {
	name, proto, here, there := "http", corev1.ProtocolTCP, "me", "other"
	s := &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &proto}},
	}
	for _, a := range addrs {
		yes, no := true, false
		e := discoveryv1.Endpoint{
			Addresses:  []string{strings.TrimRight(a, "!~-")},
			NodeName:   &there,
			Conditions: discoveryv1.EndpointConditions{Ready: &yes},
		}
		if strings.Contains(a, "!") {
			e.NodeName = &here
		}
		if strings.Contains(a, "~") {
			e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
		}
		if strings.Contains(a, "-") {
			e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &no}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

var testMachine = Machine{Pods: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}

// tableOf returns the rules of services that all have the same endpoints.
func tableOf(t testing.TB, f nft.Family, all []*corev1.Service, eps []*discoveryv1.EndpointSlice) *Table {
	t.Helper()
	table, err := NewTable(f, testMachine)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if err := table.SetService(s.Namespace+"/"+s.Name, Ports(s, eps, f, Location{Node: "me"})); err != nil {
			t.Fatal(err)
		}
	}
	return table
}

// Proves S28, S29.
func TestRulesOfServices(t *testing.T) {
	local := corev1.ServiceInternalTrafficPolicyLocal
	for _, c := range []struct {
		name    string
		service *corev1.Service
		slices  []*discoveryv1.EndpointSlice
	}{
		{"clusterip", service("web", "10.96.0.7", nil),
			[]*discoveryv1.EndpointSlice{slice(8080, "10.244.1.2", "10.244.0.3!"),
				slice(8080, "10.244.1.2", "10.244.2.9-")}},
		{"one", service("web", "10.96.0.7", nil), []*discoveryv1.EndpointSlice{slice(8080, "10.244.1.2")}},
		{"none", service("web", "10.96.0.7",
			func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30080; s.Spec.ExternalIPs = []string{"192.0.2.5"} }),
			nil},
		{"ending", service("web", "10.96.0.7", nil),
			[]*discoveryv1.EndpointSlice{slice(8080, "10.244.1.2~", "10.244.1.3-")}},
		{"nodeport", service("web", "10.96.0.7", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30080 }),
			[]*discoveryv1.EndpointSlice{slice(8080, "10.244.1.2", "10.244.0.3!")}},
		{"local", service("web", "10.96.0.7", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeLoadBalancer, 30080
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.80"}}
		}), []*discoveryv1.EndpointSlice{slice(8080, "10.244.1.2", "10.244.0.3!")}},
		{"localnone", service("web", "10.96.0.7", func(s *corev1.Service) {
			s.Spec.Ports[0].NodePort = 30080
			s.Spec.ExternalTrafficPolicy, s.Spec.InternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal,
				&local
		}), []*discoveryv1.EndpointSlice{slice(8080, "10.244.1.2")}},
		{"localending", service("web", "10.96.0.7", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeLoadBalancer, 30080
			s.Spec.ExternalTrafficPolicy, s.Spec.InternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal,
				&local
		}), []*discoveryv1.EndpointSlice{slice(8080, "10.244.1.2", "10.244.0.3!~", "10.244.0.4!-")}},
		{"affinity", service("web", "10.96.0.7",
			func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }),
			[]*discoveryv1.EndpointSlice{slice(8080, "10.244.1.2", "10.244.0.3!")}},
		{"headless", service("web", corev1.ClusterIPNone, nil),
			[]*discoveryv1.EndpointSlice{slice(8080, "10.244.1.2")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkGolden(t, c.name+".nft", tableOf(t, nft.IPv4, []*corev1.Service{c.service}, c.slices).Text())
			chains := NewChains(nft.IPv4, testMachine)
			if err := chains.SetService("shop/web",
				Ports(c.service, c.slices, nft.IPv4, Location{Node: "me"})); err != nil {
				t.Fatal(err)
			}
			checkGolden(t, c.name+".iptables", chainText(chains))
		})
	}
}

func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *updateGolden {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// chainText returns chains in the format of iptables-save.
func chainText(c *Chains) string {
	var b strings.Builder
	all := c.All()
	names := slices.SortedFunc(maps.Keys(all), func(a, b Chain) int {
		return strings.Compare(a.Table+" "+a.Name, b.Table+" "+b.Name)
	})
	for _, name := range names {
		fmt.Fprintf(&b, "*%s :%s\n", name.Table, name.Name)
		for _, rule := range all[name] {
			fmt.Fprintf(&b, "  %s\n", rule)
		}
	}
	return b.String()
}

// After any sequence of changes, the table equals a newly built one, and no change is rejected.
// Proves S28.
func TestChangedServicesLeaveNoRules(t *testing.T) {
	drawn := func(t *rapid.T, name string) *corev1.Service {
		return service(name, fmt.Sprintf("10.96.0.%d", rapid.IntRange(1, 3).Draw(t, "ip")), func(s *corev1.Service) {
			if rapid.Bool().Draw(t, "nodeport") {
				s.Spec.Ports[0].NodePort = int32(30000 + rapid.IntRange(0, 2).Draw(t, "port"))
			}
			if rapid.Bool().Draw(t, "external") {
				s.Spec.ExternalIPs = []string{
					rapid.SampledFrom([]string{"10.96.0.1", "10.96.0.2", "192.0.2.1", "192.0.2.2"}).Draw(t, "address"),
				}
			}
			if rapid.Bool().Draw(t, "affinity") {
				seconds := rapid.SampledFrom([]int32{60, 10800}).Draw(t, "seconds")
				s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
					ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds},
				}
			}
			if rapid.Bool().Draw(t, "local") {
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			}
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		table, err := NewTable(nft.IPv4, testMachine)
		if err != nil {
			t.Fatal(err)
		}
		chains := NewChains(nft.IPv4, testMachine)
		now := map[string][]Port{}
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "service")
			var ports []Port
			if rapid.IntRange(0, 3).Draw(t, "gone") > 0 {
				var addrs []string
				for range rapid.IntRange(0, 3).Draw(t, "endpoints") {
					addrs = append(addrs, fmt.Sprintf("10.244.0.%d%s", rapid.IntRange(1, 5).Draw(t, "endpoint"),
						rapid.SampledFrom([]string{"", "!", "~", "-"}).Draw(t, "state")))
				}
				ports = Ports(drawn(t, name), []*discoveryv1.EndpointSlice{slice(80, addrs...)}, nft.IPv4,
					Location{Node: "me"})
			}
			now["shop/"+name] = ports
			if err := errors.Join(table.SetService("shop/"+name, ports),
				chains.SetService("shop/"+name, ports)); err != nil {
				t.Fatal(err)
			}
		}
		chainsAnew := NewChains(nft.IPv4, testMachine)
		rebuilt, err := NewTable(nft.IPv4, testMachine)
		if err != nil {
			t.Fatal(err)
		}
		for name, ports := range now {
			if err := errors.Join(rebuilt.SetService(name, ports), chainsAnew.SetService(name, ports)); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := chainText(chains), chainText(chainsAnew); got != want {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
		if got, want := table.Text(), rebuilt.Text(); got != want {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
	})
}

func TestStaleFlowsOfChangedPorts(t *testing.T) {
	ep := func(s string) Endpoint { return Endpoint{To: netip.MustParseAddrPort(s)} }
	before := []Port{
		{Service: "dns", Proto: nft.UDP, Port: 53, Endpoints: []Endpoint{ep("10.0.0.1:53"), ep("10.0.0.2:53")}},
		{Service: "log", Proto: nft.UDP, Port: 5},
		{Service: "web", Proto: nft.TCP, Port: 80, Endpoints: []Endpoint{ep("10.0.0.3:80")}},
	}
	now := []Port{
		{Service: "dns", Proto: nft.UDP, Port: 53, Endpoints: []Endpoint{ep("10.0.0.2:53")}},
		{Service: "log", Proto: nft.UDP, Port: 5, Endpoints: []Endpoint{ep("10.0.0.9:5")}},
	}
	var g StaleFlows
	g.AddChange(before, now)
	if len(g.Endpoints) != 2 || g.Endpoints[0].To.String() != "10.0.0.1:53" ||
		g.Endpoints[1].To.String() != "10.0.0.3:80" ||
		len(g.Services) != 1 ||
		g.Services[0].Service != "log" {
		t.Errorf("got %+v", g)
	}
}

// An SCTP association stays with an endpoint that is listed, ready or not, and is forgotten when the endpoint is
// removed. It is also forgotten when its port gets a first endpoint.
// Proves S28.
func TestSCTPAssociationsAreDeletedWithTheirEndpoint(t *testing.T) {
	at := func(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
	port := func(others []netip.AddrPort, eps ...string) []Port {
		p := Port{Service: "s1", Proto: nft.SCTP, Port: 36412, Inactive: others}
		for _, s := range eps {
			p.Endpoints = append(p.Endpoints, Endpoint{To: at(s)})
		}
		return []Port{p}
	}
	for name, test := range map[string]struct {
		before, now []Port
		left        []netip.AddrPort
		services    int
	}{
		"one is not ready any more": {port(nil, "10.0.0.1:1", "10.0.0.2:1"),
			port([]netip.AddrPort{at("10.0.0.1:1")}, "10.0.0.2:1"), nil, 0},
		"one is gone": {port(nil, "10.0.0.1:1", "10.0.0.2:1"), port(nil, "10.0.0.2:1"),
			[]netip.AddrPort{at("10.0.0.1:1")}, 0},
		"one that was not ready goes": {port([]netip.AddrPort{at("10.0.0.1:1")}, "10.0.0.2:1"), port(nil, "10.0.0.2:1"),
			[]netip.AddrPort{at("10.0.0.1:1")}, 0},
		"the service is gone": {port([]netip.AddrPort{at("10.0.0.1:1")}), nil, []netip.AddrPort{at("10.0.0.1:1")}, 0},
		"the first comes":     {port(nil), port(nil, "10.0.0.1:1"), nil, 1},
	} {
		var g StaleFlows
		g.AddChange(test.before, test.now)
		var left []netip.AddrPort
		for _, l := range g.Endpoints {
			left = append(left, l.To)
		}
		if !slices.Equal(left, test.left) || len(g.Services) != test.services {
			t.Errorf("%s: forgotten are flows to %v and to %d ports; want %v and %d", name, left, len(g.Services),
				test.left, test.services)
		}
	}
}

// Load balancer addresses lead to their service like external IPs, except those with ipMode Proxy. Source ranges only
// apply to load balancer addresses. Without allocated node ports there are none.
func TestAddressesOfLoadBalancers(t *testing.T) {
	vip, proxy := corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy
	s := service("web", "10.96.0.7", func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.ExternalIPs = []string{"192.0.2.5"}
		s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24", "2001:db8::/32"}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
			{IP: "192.0.2.80", IPMode: &vip},
			{IP: "192.0.2.81", IPMode: &proxy},
			{Hostname: "lb.example.com"},
		}
	})
	text := tableOf(t, nft.IPv4, []*corev1.Service{s}, []*discoveryv1.EndpointSlice{slice(8080, "10.244.1.2")}).Text()
	for _, want := range []string{"192.0.2.80 . tcp . 80 : goto external-", "192.0.2.5 . tcp . 80 : goto " +
		"external-", "ip daddr 192.0.2.80 jump firewall-", "ip saddr 198.51.100.0/24 return"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, no := range []string{"192.0.2.81", "ip daddr 192.0.2.5 jump", "tcp . 0 :", "2001:db8"} {
		if strings.Contains(text, no) {
			t.Errorf("%q in\n%s", no, text)
		}
	}
}

func TestServicesOfTheSecondFamily(t *testing.T) {
	s := service("web", "10.96.0.7", func(s *corev1.Service) {
		s.Spec.ClusterIPs = []string{"10.96.0.7", "fd00:96::7"}
		s.Spec.Ports[0].NodePort, s.Spec.Type = 30080, corev1.ServiceTypeLoadBalancer
		s.Spec.ExternalIPs = []string{"192.0.2.5", "2001:db8::5"}
		s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "2001:db8::6"}}
	})
	six := slice(8080, "fd00:244::2", "fd00:244::3!")
	six.AddressType = discoveryv1.AddressTypeIPv6
	both := []*discoveryv1.EndpointSlice{slice(8080, "10.244.1.2"), six}
	text := tableOf(t, nft.IPv6, []*corev1.Service{s}, both).Text()
	for _, want := range []string{"fd00:96::7 . tcp . 80 : 2", "2001:db8::5 . tcp . 80 : goto " +
		"external-", "tcp . 30080 : goto external-",
		"fd00:96::7 . tcp . 80 . 1 : fd00:244::3 . 8080", "dnat to numgen random mod 2 map { 0 : fd00:244::2 . 8080, " +
			"1 : fd00:244::3 . 8080 }", "fd00:244::3 . fd00:244::3", "ip6 daddr 2001:db8::6 jump firewall-"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, " 10.") || strings.Contains(text, "return\n    return") ||
		strings.Contains(text, "198.51.100") {
		t.Errorf("addresses of the first family in\n%s", text)
	}
}
