package zone

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/dns/wire"
)

// A name with other names below it exists. Otherwise resolvers would conclude that there are none below it (RFC 8020).
func TestMissingNamesDifferFromMissingRecords(t *testing.T) {
	c := newCluster(t)
	c.service("web", corev1.ServiceSpec{ClusterIP: "10.96.0.7"})
	c.service("set", corev1.ServiceSpec{ClusterIP: "10.96.0.8"}, sliceOf("http", 80, endpointOf("10.244.1.2", "set-0"),
		endpointOf("10.244.1.3", "")))
	c.check(queryCases{
		{"cluster.local.", dns.TypeA, "no data in cluster.local."},
		{"svc.cluster.local.", dns.TypeA, "no data in cluster.local."},
		{"default.svc.cluster.local.", dns.TypeA, "no data in cluster.local."},
		{"nowhere.svc.cluster.local.", dns.TypeA, "no name in cluster.local."},
		{"web.nowhere.svc.cluster.local.", dns.TypeA, "no name in cluster.local."},
		{"other.cluster.local.", dns.TypeA, "no name in cluster.local."},
		{"x.web.default.svc.cluster.local.", dns.TypeA, "no name in cluster.local."},
		{"*.default.svc.cluster.local.", dns.TypeA, "no name in cluster.local."},
		{"web.*.svc.cluster.local.", dns.TypeA, "no name in cluster.local."},
		{"any.default.svc.cluster.local.", dns.TypeA, "no name in cluster.local."},
		{"example.org.default.svc.cluster.local.", dns.TypeA, "no name in cluster.local."},
		{"set-0.set.default.svc.cluster.local.", dns.TypeA, "A 10.244.1.2"},
		{"10-244-1-3.set.default.svc.cluster.local.", dns.TypeA, "no name in cluster.local."},
	})
	for _, name := range []string{"example.org.", "notcluster.local.", "local.", ".", "1.1.1.1.in-addr.arpa.",
		"in-addr.arpa.", "arpa.", reverseName("2001:db8::1")} {
		c.check(queryCases{{name, dns.TypeA, "foreign"}})
	}
}

func TestApexHasSOAAndNSRecords(t *testing.T) {
	c := newCluster(t)
	c.check(
		queryCases{
			{"ns.dns.cluster.local.", dns.TypeA, "no data in cluster.local."},
			{"dns.cluster.local.", dns.TypeA, "no data in cluster.local."},
		},
	)
	c.Set(Key{"kube-system", "kube-dns"}, NewService(c.Domain(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system",
			Name:      "kube-dns",
		}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.10"}}, nil))
	const soa = "SOA ns.dns.cluster.local. hostmaster.cluster.local. 7 7200 1800 86400 5"
	c.check(queryCases{
		{"cluster.local.", dns.TypeSOA, soa},
		{"cluster.local.", dns.TypeNS, "NS ns.dns.cluster.local."},
		{"cluster.local.", dns.TypeANY, "NS ns.dns.cluster.local., " + soa},
		{"ns.dns.cluster.local.", dns.TypeA, "A 10.96.0.10"},
		{"x.dns.cluster.local.", dns.TypeA, "no name in cluster.local."},
		{"244.10.in-addr.arpa.", dns.TypeSOA, soa},
		{"244.10.in-addr.arpa.", dns.TypeNS, "NS ns.dns.cluster.local."},
		{"web.default.svc.cluster.local.", dns.TypeSOA, "no name in cluster.local."},
	})
	m := c.ask("nobody.default.svc.cluster.local.", dns.TypeA)
	if got := formatRecords(m.Ns); !slices.Equal(got, []string{"cluster.local. 5 IN " + soa}) || !m.Authoritative {
		t.Errorf("denied by %v, authoritative: %v", got, m.Authoritative)
	}
}

// Networks whose prefix is not at a label boundary correspond to several zones.
func TestReverseZonesAreThoseOfPodsAndServices(t *testing.T) {
	six := reverseName("fd00:10::99")
	newCluster(t).check(queryCases{
		{"9.9.244.10.in-addr.arpa.", dns.TypePTR, "no name in 244.10.in-addr.arpa."},
		{"9.9.111.10.in-addr.arpa.", dns.TypePTR, "no name in 111.10.in-addr.arpa."},
		{"9.244.10.in-addr.arpa.", dns.TypePTR, "no data in 244.10.in-addr.arpa."},
		{"244.10.in-addr.arpa.", dns.TypePTR, "no data in 244.10.in-addr.arpa."},
		{"x.9.9.244.10.in-addr.arpa.", dns.TypePTR, "no name in 244.10.in-addr.arpa."},
		{"x.244.10.in-addr.arpa.", dns.TypePTR, "no name in 244.10.in-addr.arpa."},
		{"300.9.244.10.in-addr.arpa.", dns.TypePTR, "no name in 244.10.in-addr.arpa."},
		{"09.9.244.10.in-addr.arpa.", dns.TypePTR, "no name in 244.10.in-addr.arpa."},
		{six, dns.TypePTR, "no name in " + six[2*(128-56)/4:]},
		{"9.9.95.10.in-addr.arpa.", dns.TypePTR, "foreign"},
		{"9.9.112.10.in-addr.arpa.", dns.TypePTR, "foreign"},
		{"10.in-addr.arpa.", dns.TypePTR, "foreign"},
		{"9.9.9.192.in-addr.arpa.", dns.TypePTR, "foreign"},
		{reverseName("fd00:11::1"), dns.TypePTR, "foreign"},
	})
}

func TestConfiguredHostsAreAnswered(t *testing.T) {
	c := newCluster(t, func(cfg *Config) {
		cfg.Hosts = map[string][]netip.Addr{
			"DB.corp.example": {netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")},
		}
	})
	c.check(queryCases{
		{"db.corp.example.", dns.TypeA, "A 192.0.2.7"},
		{"db.Corp.example.", dns.TypeAAAA, "AAAA 2001:db8::7"},
		{"7.2.0.192.in-addr.arpa.", dns.TypePTR, "PTR db.corp.example."},
		{"db.corp.example.", dns.TypeMX, "no data in db.corp.example."},
		{"x.db.corp.example.", dns.TypeA, "foreign"},
	})
}

// Addresses are in random order, so that clients that take the first one are spread, even if not all addresses fit.
func TestAddressesAreInRandomOrder(t *testing.T) {
	c := newCluster(t)
	var ends []discoveryv1.Endpoint
	for i := range 200 {
		ends = append(ends, endpointOf(fmt.Sprintf("10.244.1.%d", i+1), ""))
	}
	c.service("few", corev1.ServiceSpec{ClusterIP: "None"}, sliceOf("x", 1, ends[:3]...))
	c.service("many", corev1.ServiceSpec{ClusterIP: "None"}, sliceOf("x", 1, ends...))
	orders, first := map[string]int{}, map[string]bool{}
	for range 600 {
		text := ""
		for _, rr := range c.ask("few.default.svc.cluster.local.", dns.TypeA).Answer {
			text += rr.(*dns.A).A.String() + " "
		}
		orders[text]++
		cut := c.askWith(new(dns.Msg).SetQuestion("many.default.svc.cluster.local.", dns.TypeA), wire.PlainSize)
		seen := map[string]bool{}
		for _, rr := range cut.Answer {
			seen[rr.(*dns.A).A.String()] = true
		}
		if want := (512 - 12 - 37 - 4 + 4) / 16; !cut.Truncated || len(seen) != len(cut.Answer) || len(seen) < want-1 {
			t.Fatalf("%d different addresses in 512 bytes, truncated: %v", len(seen), cut.Truncated)
		}
		first[cut.Answer[0].(*dns.A).A.String()] = true
	}
	if len(orders) != 6 {
		t.Errorf("600 answers came in the orders %v", orders)
	}
	for order, n := range orders {
		if n < 50 {
			t.Errorf("%s came %d times of 600", order, n)
		}
	}
	if len(first) < 150 {
		t.Errorf("only %d of 200 addresses ever came first", len(first))
	}
}

// A service with very many ports and endpoints fills the largest message without overflowing it.
func TestHugeServiceIsTruncatedToTheMessageSize(t *testing.T) {
	c := newCluster(t)
	var ends []discoveryv1.Endpoint
	for i := range 5000 {
		ends = append(ends, endpointOf(fmt.Sprintf("10.244.%d.%d", i/250, i%250+1), ""))
	}
	c.service("huge", corev1.ServiceSpec{ClusterIP: "None"}, sliceOf("x", 1, ends...))
	for _, kind := range []uint16{dns.TypeA, dns.TypeSRV} {
		if m := c.ask("huge.default.svc.cluster.local.", kind); !m.Truncated || len(m.Answer) < 1000 {
			t.Errorf("%s: %d records, truncated: %v", dns.TypeToString[kind], len(m.Answer), m.Truncated)
		}
	}
	small := c.askWith(new(dns.Msg).SetQuestion("huge.default.svc.cluster.local.", dns.TypeSRV).SetEdns0(1232, false),
		wire.UDPSize)
	if !small.Truncated || len(small.Answer) < 10 || small.IsEdns0() == nil {
		t.Errorf("%d records, truncated: %v", len(small.Answer), small.Truncated)
	}
}

func FuzzAnswerIsValidForAnotherParser(f *testing.F) {
	z, err := New(
		Config{
			Domain: "cluster.local",
			TTL:    time.Second,
			Networks: []netip.Prefix{
				netip.MustParsePrefix("10.96.0.0/12"),
				netip.MustParsePrefix("fd00::/63"),
				netip.MustParsePrefix("0.0.0.0/0"),
			},
		},
	)
	if err != nil {
		f.Fatal(err)
	}
	z.SetNamespace("default", true)
	object := func(name string, spec corev1.ServiceSpec) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec}
	}
	z.Set(
		Key{"default", "db"},
		NewService(
			z.Domain(),
			object("db", corev1.ServiceSpec{ClusterIP: "None"}),
			[]*discoveryv1.EndpointSlice{sliceOf("sql", 5432, endpointOf("10.96.1.2", "db-0"),
				endpointOf("fd00::3", ""))},
		),
	)
	z.Set(Key{"default", "away"}, NewService(z.Domain(), object("away",
		corev1.ServiceSpec{Type: "ExternalName", ExternalName: "example.org"}), nil))
	for _, name := range []string{"db.default.svc.cluster.local.", "db-0.db.default.svc.cluster.local.",
		"_sql._tcp.db.default.svc.cluster.local.", "2.1.96.10.in-addr.arpa.", reverseName("fd00::3"),
		"away.default.svc.cluster.local.", "fd00--3.default.pod.cluster.local.", "cluster.local.",
		"96.10.in-addr.arpa.", "_._.db.default.svc.cluster.local.", "ns.dns.cluster.local."} {
		packed, err := new(dns.Msg).SetQuestion(name, dns.TypeANY).SetEdns0(1232, true).Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed, 512)
	}
	f.Fuzz(func(t *testing.T, packed []byte, limit int) {
		var q wire.Query
		if code, ok := q.Parse(packed); !ok || code != wire.Success {
			return
		}
		limit = max(min(limit, wire.MaxSize), wire.PlainSize)
		var a wire.Answer
		a.Start(nil, &q, limit)
		r := z.Answer(&a, &q.Name, q.Type, wire.QuestionOffset)
		if !r.OutOfZone && a.Count(wire.Answers) == 0 {
			z.AddSOA(&a, &q.Name, r.ApexLabel)
		}
		out := a.Finish(wire.Success, true)
		if len(out) > limit {
			t.Fatalf("%d bytes of %d", len(out), limit)
		}
		if err := new(dns.Msg).Unpack(out); err != nil {
			t.Fatalf("the answer to %q: %v", q.Name.String(), err)
		}
	})
}
