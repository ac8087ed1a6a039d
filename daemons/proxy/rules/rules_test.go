package rules

import (
	"flag"
	"fmt"
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
)

var update = flag.Bool("update", false, "rewrite the golden files")

func service(name, ip string, change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ServiceSpec{
		ClusterIP: ip, Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
	}}
	if change != nil {
		change(s)
	}
	return s
}

// slice makes an endpoint slice of addresses; one that ends in ! is on this node, in
// ~ is ending but still serves, in - serves no more.
func slice(port int32, addrs ...string) *discoveryv1.EndpointSlice {
	name, proto, here, there := "http", corev1.ProtocolTCP, "me", "other"
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &proto}}}
	for _, a := range addrs {
		yes, no := true, false
		e := discoveryv1.Endpoint{Addresses: []string{strings.TrimRight(a, "!~-")}, NodeName: &there, Conditions: discoveryv1.EndpointConditions{Ready: &yes}}
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

var machine = Machine{Pods: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}

func TestRulesOfServicesS28S29(t *testing.T) {
	local := corev1.ServiceInternalTrafficPolicyLocal
	for _, c := range []struct {
		name    string
		service *corev1.Service
		slices  []*discoveryv1.EndpointSlice
	}{
		{"clusterip", service("web", "10.96.0.7", nil), []*discoveryv1.EndpointSlice{slice(8080, "10.244.1.2", "10.244.0.3!"), slice(8080, "10.244.1.2", "10.244.2.9-")}},
		{"one", service("web", "10.96.0.7", nil), []*discoveryv1.EndpointSlice{slice(8080, "10.244.1.2")}},
		{"none", service("web", "10.96.0.7", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30080; s.Spec.ExternalIPs = []string{"192.0.2.5"} }), nil},
		{"ending", service("web", "10.96.0.7", nil), []*discoveryv1.EndpointSlice{slice(8080, "10.244.1.2~", "10.244.1.3-")}},
		{"nodeport", service("web", "10.96.0.7", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30080 }), []*discoveryv1.EndpointSlice{slice(8080, "10.244.1.2", "10.244.0.3!")}},
		{"local", service("web", "10.96.0.7", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeLoadBalancer, 30080
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.80"}}
		}), []*discoveryv1.EndpointSlice{slice(8080, "10.244.1.2", "10.244.0.3!")}},
		{"localnone", service("web", "10.96.0.7", func(s *corev1.Service) {
			s.Spec.Ports[0].NodePort = 30080
			s.Spec.ExternalTrafficPolicy, s.Spec.InternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal, &local
		}), []*discoveryv1.EndpointSlice{slice(8080, "10.244.1.2")}},
		{"localending", service("web", "10.96.0.7", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeLoadBalancer, 30080
			s.Spec.ExternalTrafficPolicy, s.Spec.InternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal, &local
		}), []*discoveryv1.EndpointSlice{slice(8080, "10.244.1.2", "10.244.0.3!~", "10.244.0.4!-")}},
		{"affinity", service("web", "10.96.0.7", func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }), []*discoveryv1.EndpointSlice{slice(8080, "10.244.1.2", "10.244.0.3!")}},
		{"headless", service("web", corev1.ClusterIPNone, nil), []*discoveryv1.EndpointSlice{slice(8080, "10.244.1.2")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ports := Ports([]*corev1.Service{c.service}, func(string, string) []*discoveryv1.EndpointSlice { return c.slices }, "me", "")
			got := Build(ports, machine).Text()
			path := filepath.Join("testdata", c.name+".nft")
			if *update {
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
		})
	}
}

// apply carries a change out on a copy, refusing what the kernel would refuse.
func apply(t *rapid.T, have, want *Table, c *Change) *Table {
	got := &Table{Chains: map[string]Chain{}, Maps: map[string]Map{}, Sets: map[string]Set{}}
	for n, ch := range have.Chains {
		got.Chains[n] = ch
	}
	for n, s := range have.Sets {
		got.Sets[n] = s
	}
	for n, m := range want.Maps {
		got.Maps[n] = Map{Key: m.Key, Elements: map[Dest]Verdict{}}
		for d, v := range have.Maps[n].Elements {
			got.Maps[n].Elements[d] = v
		}
	}
	for _, n := range c.AddSets {
		got.Sets[n] = want.Sets[n]
	}
	for _, n := range c.AddChains {
		got.Chains[n] = Chain{Hook: want.Chains[n].Hook}
	}
	for n, all := range c.DelElements {
		for d := range all {
			if _, ok := got.Maps[n].Elements[d]; !ok {
				t.Fatalf("removes %v from %s, where it is not", d, n)
			}
			delete(got.Maps[n].Elements, d)
		}
	}
	for n, all := range c.AddElements {
		for d, v := range all {
			if _, ok := got.Maps[n].Elements[d]; ok {
				t.Fatalf("adds %v to %s, where it is", d, n)
			}
			if _, ok := got.Chains[v.Chain]; !ok && v.Chain != "" {
				t.Fatalf("leads to chain %s, which is not there", v.Chain)
			}
			got.Maps[n].Elements[d] = v
		}
	}
	for _, n := range c.SetRules {
		got.Chains[n] = Chain{Hook: got.Chains[n].Hook, Rules: want.Chains[n].Rules}
	}
	for _, n := range c.DelChains {
		delete(got.Chains, n)
	}
	for _, n := range c.DelSets {
		delete(got.Sets, n)
	}
	for n, ch := range got.Chains {
		for _, r := range ch.Rules {
			for _, s := range r {
				var to []string
				switch s := s.(type) {
				case Do:
					to = []string{s.Chain}
				case Random:
					to = s.Chains
				}
				for _, name := range to {
					if _, ok := got.Chains[name]; !ok && name != "" {
						t.Fatalf("chain %s leads to %s, which is gone", n, name)
					}
				}
			}
		}
	}
	return got
}

func TestEveryChangeCanBeAppliedAndLeadsToWhatIsWanted(t *testing.T) {
	draw := rapid.Custom(func(t *rapid.T) *Table {
		var services []*corev1.Service
		bySvc := map[string][]*discoveryv1.EndpointSlice{}
		for i := range rapid.IntRange(0, 4).Draw(t, "services") {
			name := fmt.Sprintf("s%d", i)
			services = append(services, service(name, fmt.Sprintf("10.96.0.%d", rapid.IntRange(1, 5).Draw(t, "ip")), func(s *corev1.Service) {
				if rapid.Bool().Draw(t, "nodeport") {
					s.Spec.Ports[0].NodePort = int32(30000 + i)
				}
				if rapid.Bool().Draw(t, "affinity") {
					s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				}
				if rapid.Bool().Draw(t, "local") {
					s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
				}
			}))
			var addrs []string
			for range rapid.IntRange(0, 3).Draw(t, "endpoints") {
				addrs = append(addrs, fmt.Sprintf("10.244.0.%d%s", rapid.IntRange(1, 5).Draw(t, "endpoint"), rapid.SampledFrom([]string{"", "!", "~", "-"}).Draw(t, "state")))
			}
			bySvc[name] = []*discoveryv1.EndpointSlice{slice(80, addrs...)}
		}
		return Build(Ports(services, func(_, name string) []*discoveryv1.EndpointSlice { return bySvc[name] }, "me", ""), machine)
	})
	rapid.Check(t, func(t *rapid.T) {
		have, want := draw.Draw(t, "have"), draw.Draw(t, "want")
		if got := apply(t, have, want, Diff(have, want)).Text(); got != want.Text() {
			t.Fatalf("got\n%s\nwant\n%s", got, want.Text())
		}
		if c := Diff(want, want); !c.Empty() {
			t.Fatalf("no difference is a change: %+v", c)
		}
	})
}

func TestFlowsToForget(t *testing.T) {
	ep := func(s string) Endpoint { return Endpoint{To: netip.MustParseAddrPort(s)} }
	had := []Port{{Service: "dns", Proto: UDP, Port: 53, Endpoints: []Endpoint{ep("10.0.0.1:53"), ep("10.0.0.2:53")}}, {Service: "log", Proto: UDP, Port: 5}, {Service: "web", Proto: TCP, Port: 80, Endpoints: []Endpoint{ep("10.0.0.3:80")}}}
	now := []Port{{Service: "dns", Proto: UDP, Port: 53, Endpoints: []Endpoint{ep("10.0.0.2:53")}}, {Service: "log", Proto: UDP, Port: 5, Endpoints: []Endpoint{ep("10.0.0.9:5")}}}
	endpoints, services := Gone(had, now)
	if len(endpoints) != 2 || endpoints[0].To.String() != "10.0.0.1:53" || endpoints[1].To.String() != "10.0.0.3:80" || len(services) != 1 || services[0].Service != "log" {
		t.Errorf("got %v and %v", endpoints, services)
	}
}

// S12, S28: who may write services in one namespace chooses external addresses freely, and has the traffic of nobody else's service by that.
func TestExternalAddressesTakeNothingFromServicesS28(t *testing.T) {
	address := func(text string) netip.Addr { return netip.MustParseAddr(text) }
	backend := func(text string) []Endpoint { return []Endpoint{{To: netip.MustParseAddrPort(text)}} }
	victim := Port{Namespace: "default", Service: "kubernetes", Proto: TCP, Port: 443, ClusterIP: address("10.96.0.1"), Endpoints: backend("10.99.0.11:6443")}
	shop := Port{Namespace: "shop", Service: "web", Proto: TCP, Port: 80, ClusterIP: address("10.96.0.8"), External: []netip.Addr{address("192.0.2.1")}, Endpoints: backend("10.244.1.8:80")}
	for name, thief := range map[string]Port{
		"with endpoints":    {Namespace: "a", Service: "x", Proto: TCP, Port: 443, ClusterIP: address("10.96.0.9"), Endpoints: backend("10.244.1.9:443")},
		"without endpoints": {Namespace: "z", Service: "x", Proto: TCP, Port: 443, ClusterIP: address("10.96.0.9")},
		"another port":      {Namespace: "a", Service: "x", Proto: TCP, Port: 8443, ClusterIP: address("10.96.0.9"), Endpoints: backend("10.244.1.9:443")},
		"empty, later":      {Namespace: "z", Service: "x", Proto: TCP, Port: 80, ClusterIP: address("10.96.0.9")},
	} {
		thief.External = []netip.Addr{victim.ClusterIP, shop.External[0]}
		ports := []Port{thief, victim, shop}
		slices.SortFunc(ports, func(a, b Port) int { return strings.Compare(a.Key(), b.Key()) })
		table := Build(ports, Machine{})
		for _, own := range []struct {
			d Dest
			p Port
		}{{Dest{victim.ClusterIP, TCP, 443}, victim}, {Dest{shop.External[0], TCP, 80}, shop}} {
			if v := table.Maps[serviceMap].Elements[own.d]; !strings.HasSuffix(v.Chain, own.p.Key()) {
				t.Errorf("%s: %s leads to %s", name, own.d, v)
			}
			if v, ok := table.Maps[emptyMap].Elements[own.d]; ok {
				t.Errorf("%s: %s: %s", name, own.d, v)
			}
		}
		if v, ok := table.Maps[serviceMap].Elements[Dest{victim.ClusterIP, TCP, 8443}]; ok {
			t.Errorf("%s: another port of a service's address leads to %s", name, v)
		}
	}
}
