package zone

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/dns/wire"
)

// cluster is a zone under test, with helpers to fill and to query it.
type cluster struct {
	*Zone
	t *testing.T
}

func newCluster(t *testing.T, change ...func(*Config)) cluster {
	t.Helper()
	cfg := Config{
		Domain:  "cluster.local",
		Service: Key{"kube-system", "kube-dns"},
		TTL:     30 * time.Second,
		Serial:  7,
		Networks: []netip.Prefix{
			netip.MustParsePrefix(
				"10.244.0.0/16"), netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:10::/56"),
			netip.MustParsePrefix("fd00:20::/108")},
	}
	for _, f := range change {
		f(&cfg)
	}
	z, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	z.SetNamespace("default", true)
	return cluster{z, t}
}

func (c cluster) service(name string, spec corev1.ServiceSpec, eps ...*discoveryv1.EndpointSlice) {
	c.t.Helper()
	s := NewService(c.Domain(),
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec}, eps)
	if s == nil {
		c.t.Fatalf("%s can have no name", name)
	}
	c.Set(Key{"default", name}, s)
}

func servicePort(name string, number int32, protocol corev1.Protocol) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: number, Protocol: protocol}
}

func sliceOf(port string, number int32, list ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		Ports:     []discoveryv1.EndpointPort{{Name: &port, Port: &number, Protocol: ptr.To(corev1.ProtocolTCP)}},
		Endpoints: list,
	}
}

func endpointOf(address, hostname string) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{address}}
	if hostname != "" {
		e.Hostname = &hostname
	}
	return e
}

func markNotReady(e discoveryv1.Endpoint) discoveryv1.Endpoint {
	e.Conditions.Ready = ptr.To(false)
	return e
}

// ask answers a question and returns the message as a resolver library parses it. It returns nil if the name is outside
// of the zone.
func (c cluster) ask(name string, kind uint16) *dns.Msg {
	c.t.Helper()
	return c.askWith(new(dns.Msg).SetQuestion(name, kind), wire.MaxSize)
}

func (c cluster) askWith(m *dns.Msg, limit int) *dns.Msg {
	c.t.Helper()
	packed, err := m.Pack()
	if err != nil {
		c.t.Fatal(err)
	}
	var q wire.Query
	if code, ok := q.Parse(packed); !ok || code != wire.Success {
		c.t.Fatalf("the question has code %d", code)
	}
	var a wire.Answer
	a.Start(nil, &q, limit)
	r := c.Answer(&a, &q.Name, q.Type, wire.QuestionOffset)
	if r.OutOfZone {
		return nil
	}
	code := wire.Success
	if r.NoName {
		code = wire.NameError
	}
	if a.Count(wire.Answers) == 0 {
		c.AddSOA(&a, &q.Name, r.ApexLabel)
	}
	out := new(dns.Msg)
	if err := out.Unpack(a.Finish(code, true)); err != nil {
		c.t.Fatalf("%s: %v", m.Question[0].Name, err)
	}
	return out
}

// formatAnswer returns a short form of an answer: its records without names and TTLs, or why there are none.
func formatAnswer(m *dns.Msg) string {
	if m == nil {
		return "foreign"
	}
	var list []string
	for _, rr := range m.Answer {
		h := rr.Header()
		list = append(list, dns.TypeToString[h.Rrtype]+" "+strings.TrimPrefix(rr.String(), h.String()))
	}
	if len(list) > 0 {
		slices.Sort(list)
		return strings.Join(list, ", ")
	}
	text := "no data"
	if m.Rcode == dns.RcodeNameError {
		text = "no name"
	}
	for _, rr := range m.Ns {
		text += " in " + rr.Header().Name
	}
	return text
}

type queryCases []struct {
	name string
	kind uint16
	want string
}

func (c cluster) check(list queryCases) {
	c.t.Helper()
	for _, one := range list {
		m := c.ask(one.name, one.kind)
		if got := formatAnswer(m); got != one.want {
			c.t.Errorf("%s %s\n got %s\nwant %s", one.name, dns.TypeToString[one.kind], got, one.want)
		}
		if m == nil {
			continue
		}
		for _, rr := range m.Answer {
			if rr.Header().Name != one.name || rr.Header().Ttl != 30 || rr.Header().Class != dns.ClassINET {
				c.t.Errorf("%s has the record %s", one.name, rr)
			}
		}
	}
}

func reverseName(ip string) string {
	name, err := dns.ReverseAddr(ip)
	if err != nil {
		panic(err)
	}
	return name
}

// Section 2.1: all comparisons are case-insensitive. The answer keeps the case of the question.
func TestSection2_1CaseIsIgnoredAndPreserved(t *testing.T) {
	c := newCluster(t)
	c.service("web",
		corev1.ServiceSpec{ClusterIP: "10.96.0.7", Ports: []corev1.ServicePort{servicePort("http", 80, "TCP")}})
	c.service("db", corev1.ServiceSpec{ClusterIP: "None"}, sliceOf("sql", 5432, endpointOf("10.244.1.2", "DB-0")))
	c.check(queryCases{
		{"wEb.DeFaUlT.sVc.ClUsTeR.lOcAl.", dns.TypeA, "A 10.96.0.7"},
		{"_HTTP._TCP.web.default.svc.cluster.local.", dns.TypeSRV, "SRV 0 100 80 web.default.svc.cluster.local."},
		{"Db-0.db.default.svc.cluster.local.", dns.TypeA, "A 10.244.1.2"},
		{"7.0.96.10.IN-ADDR.arpa.", dns.TypePTR, "PTR web.default.svc.cluster.local."},
	})
	if m := c.ask("wEb.default.svc.cluster.local.", dns.TypeA); m.Question[0].Name != "wEb.default.svc.cluster.local." {
		t.Errorf("the question came back as %s", m.Question[0].Name)
	}
}

// Section 2.1: the service's deprecated annotation also makes endpoints ready.
func TestSection2_1AnnotationPublishesNotReadyEndpoints(t *testing.T) {
	c := newCluster(t)
	c.Set(Key{"default", "old"}, NewService(c.Domain(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   "default",
			Name:        "old",
			Annotations: map[string]string{NotReadyAnnotation: "true"},
		}, Spec: corev1.ServiceSpec{ClusterIP: "None"},
	}, []*discoveryv1.EndpointSlice{sliceOf("sql", 5432, markNotReady(endpointOf("10.244.1.9", "db-9")))}))
	c.check(queryCases{{"old.default.svc.cluster.local.", dns.TypeA, "A 10.244.1.9"}})
}

// Section 2.2.
func TestSection2_2SchemaVersion(t *testing.T) {
	newCluster(t).check(queryCases{
		{"dns-version.cluster.local.", dns.TypeTXT, `TXT "1.1.0"`},
		{"dns-version.cluster.local.", dns.TypeA, "no data in cluster.local."},
		{"x.dns-version.cluster.local.", dns.TypeTXT, "no name in cluster.local."},
	})
}

// Section 2.3.1, for both families.
func TestSection2_3_1ClusterIPAddresses(t *testing.T) {
	c := newCluster(t)
	c.service("four", corev1.ServiceSpec{ClusterIP: "10.96.0.7"})
	c.service("six", corev1.ServiceSpec{ClusterIP: "fd00:20::7", ClusterIPs: []string{"fd00:20::7"}})
	c.service("both", corev1.ServiceSpec{ClusterIP: "10.96.0.8", ClusterIPs: []string{"10.96.0.8", "fd00:20::8"}})
	c.check(queryCases{
		{"four.default.svc.cluster.local.", dns.TypeA, "A 10.96.0.7"},
		{"four.default.svc.cluster.local.", dns.TypeAAAA, "no data in cluster.local."},
		{"six.default.svc.cluster.local.", dns.TypeAAAA, "AAAA fd00:20::7"},
		{"six.default.svc.cluster.local.", dns.TypeA, "no data in cluster.local."},
		{"both.default.svc.cluster.local.", dns.TypeA, "A 10.96.0.8"},
		{"both.default.svc.cluster.local.", dns.TypeAAAA, "AAAA fd00:20::8"},
		{"both.default.svc.cluster.local.", dns.TypeANY, "A 10.96.0.8, AAAA fd00:20::8"},
		{"both.default.svc.cluster.local.", dns.TypeMX, "no data in cluster.local."},
		{"both.default.svc.cluster.local.", 65280, "no data in cluster.local."},
	})
}

// Section 2.3.2.
func TestSection2_3_2ClusterIPPorts(t *testing.T) {
	c := newCluster(t)
	c.service("web", corev1.ServiceSpec{ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7", "fd00:20::7"},
		Ports: []corev1.ServicePort{
			servicePort("http", 80, "TCP"),
			servicePort("dns", 53, "UDP"),
			servicePort("dns", 54, "TCP"),
		}})
	c.service("unnamed",
		corev1.ServiceSpec{ClusterIP: "10.96.0.8", Ports: []corev1.ServicePort{servicePort("", 80, "")}})
	c.check(queryCases{
		{"_http._tcp.web.default.svc.cluster.local.", dns.TypeSRV, "SRV 0 100 80 web.default.svc.cluster.local."},
		{"_dns._udp.web.default.svc.cluster.local.", dns.TypeSRV, "SRV 0 100 53 web.default.svc.cluster.local."},
		{"_dns._tcp.web.default.svc.cluster.local.", dns.TypeSRV, "SRV 0 100 54 web.default.svc.cluster.local."},
		{"_http._udp.web.default.svc.cluster.local.", dns.TypeSRV, "no name in cluster.local."},
		{"_http._sctp.web.default.svc.cluster.local.", dns.TypeSRV, "no name in cluster.local."},
		{"_http._tcp.web.default.svc.cluster.local.", dns.TypeA, "no data in cluster.local."},
		{"_tcp.web.default.svc.cluster.local.", dns.TypeSRV, "no data in cluster.local."},
		{"_sctp.web.default.svc.cluster.local.", dns.TypeSRV, "no name in cluster.local."},
		{"_._tcp.unnamed.default.svc.cluster.local.", dns.TypeSRV, "no name in cluster.local."},
		{"_tcp.unnamed.default.svc.cluster.local.", dns.TypeSRV, "no name in cluster.local."},
		{
			"web.default.svc.cluster.local.",
			dns.TypeSRV,
			"SRV 0 33 53 web.default.svc.cluster.local., SRV 0 33 54 web.default.svc.cluster.local., SRV 0 33 80 " +
				"web.default.svc.cluster.local.",
		},
	})
	m := c.ask("_http._tcp.web.default.svc.cluster.local.", dns.TypeSRV)
	if got := formatRecords(m.Extra); !slices.Equal(
		got,
		[]string{
			"web.default.svc.cluster.local. 30 IN A 10.96.0.7",
			"web.default.svc.cluster.local. 30 IN AAAA fd00:20::7",
		},
	) {
		t.Errorf("the target's addresses are %v", got)
	}
}

func formatRecords(list []dns.RR) (out []string) {
	for _, rr := range list {
		out = append(out, strings.Join(strings.Fields(rr.String()), " "))
	}
	return out
}

// Section 2.3.3, for both families.
func TestSection2_3_3ClusterIPNames(t *testing.T) {
	c := newCluster(t)
	c.service("web", corev1.ServiceSpec{ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7", "fd00:20::7"}})
	c.check(queryCases{
		{"7.0.96.10.in-addr.arpa.", dns.TypePTR, "PTR web.default.svc.cluster.local."},
		{reverseName("fd00:20::7"), dns.TypePTR, "PTR web.default.svc.cluster.local."},
		{"7.0.96.10.in-addr.arpa.", dns.TypeA, "no data in 96.10.in-addr.arpa."},
	})
	c.Set(Key{"default", "web"}, nil)
	c.check(queryCases{
		{"7.0.96.10.in-addr.arpa.", dns.TypePTR, "no name in 96.10.in-addr.arpa."},
		{"web.default.svc.cluster.local.", dns.TypeA, "no name in cluster.local."},
	})
}

// Section 2.4.1, for both families.
func TestSection2_4_1HeadlessAddresses(t *testing.T) {
	c := newCluster(t)
	no := markNotReady(endpointOf("10.244.1.9", "db-9"))
	c.service("db", corev1.ServiceSpec{ClusterIP: "None"}, sliceOf("sql", 5432, endpointOf("10.244.1.2", "db-0"),
		endpointOf("10.244.1.3", "db-0"), endpointOf("10.244.1.4", ""), no), sliceOf("sql", 5432,
		endpointOf("fd00:10::2", "db-0"), endpointOf("fd00:10::4", "")))
	c.service("early", corev1.ServiceSpec{ClusterIP: "None", PublishNotReadyAddresses: true}, sliceOf("sql", 5432, no))
	c.service("none",
		corev1.ServiceSpec{ClusterIP: "None", Ports: []corev1.ServicePort{servicePort("sql", 5432, "TCP")}},
		sliceOf("sql", 5432, no))
	ending := no
	ending.Conditions.Serving, ending.Conditions.Terminating = ptr.To(true), ptr.To(true)
	c.service("ending", corev1.ServiceSpec{ClusterIP: "None"}, sliceOf("sql", 5432, ending))
	c.check(queryCases{
		{"db.default.svc.cluster.local.", dns.TypeA, "A 10.244.1.2, A 10.244.1.3, A 10.244.1.4"},
		{"db.default.svc.cluster.local.", dns.TypeAAAA, "AAAA fd00:10::2, AAAA fd00:10::4"},
		{"db-0.db.default.svc.cluster.local.", dns.TypeA, "A 10.244.1.2, A 10.244.1.3"},
		{"db-0.db.default.svc.cluster.local.", dns.TypeAAAA, "AAAA fd00:10::2"},
		{"10-244-1-4.db.default.svc.cluster.local.", dns.TypeA, "A 10.244.1.4"},
		{"fd00-10--4.db.default.svc.cluster.local.", dns.TypeAAAA, "AAAA fd00:10::4"},
		{"db-9.db.default.svc.cluster.local.", dns.TypeA, "no name in cluster.local."},
		{"x.db-0.db.default.svc.cluster.local.", dns.TypeA, "no name in cluster.local."},
		{"early.default.svc.cluster.local.", dns.TypeA, "A 10.244.1.9"},
		{"db-9.early.default.svc.cluster.local.", dns.TypeA, "A 10.244.1.9"},
		{"none.default.svc.cluster.local.", dns.TypeA, "no name in cluster.local."},
		{"_sql._tcp.none.default.svc.cluster.local.", dns.TypeSRV, "no name in cluster.local."},
		{"ending.default.svc.cluster.local.", dns.TypeA, "no name in cluster.local."},
	})
}

// Section 2.4.2.
func TestSection2_4_2HeadlessPorts(t *testing.T) {
	c := newCluster(t)
	c.service("db", corev1.ServiceSpec{ClusterIP: "None"}, sliceOf("sql", 5432, endpointOf("10.244.1.2", "db-0"),
		endpointOf("10.244.1.3", "")), sliceOf("admin", 80, endpointOf("10.244.1.2", "db-0"),
		endpointOf("10.244.1.3", "")), sliceOf("sql", 5433, endpointOf("fd00:10::5", "db-5")),
		sliceOf("", 9, endpointOf("10.244.1.2", "db-0")))
	c.check(queryCases{
		{
			"_sql._tcp.db.default.svc.cluster.local.",
			dns.TypeSRV,
			"SRV 0 33 5432 10-244-1-3.db.default.svc.cluster.local., SRV 0 33 5432 " +
				"db-0.db.default.svc.cluster.local., SRV 0 33 5433 db-5.db.default.svc.cluster.local.",
		},
		{
			"_admin._tcp.db.default.svc.cluster.local.",
			dns.TypeSRV,
			"SRV 0 50 80 10-244-1-3.db.default.svc.cluster.local., SRV 0 50 80 db-0.db.default.svc.cluster.local.",
		},
		{"_._tcp.db.default.svc.cluster.local.", dns.TypeSRV, "no name in cluster.local."},
	})
	want := []string{
		"db-0.db.default.svc.cluster.local. 30 IN A 10.244.1.2",
		"10-244-1-3.db.default.svc.cluster.local. 30 IN A 10.244.1.3",
		"db-5.db.default.svc.cluster.local. 30 IN AAAA fd00:10::5",
	}
	if got := formatRecords(c.ask("_sql._tcp.db.default.svc.cluster.local.", dns.TypeSRV).Extra); !slices.Equal(got,
		want) {
		t.Errorf("the targets' addresses are %v", got)
	}
}

// Section 2.4.3, for both families.
func TestSection2_4_3HeadlessNames(t *testing.T) {
	c := newCluster(t)
	c.service("db", corev1.ServiceSpec{ClusterIP: "None"}, sliceOf("sql", 5432, endpointOf("10.244.1.2", "db-0"),
		endpointOf("10.244.1.3", ""), endpointOf("fd00:10::2", "db-0"), endpointOf("192.0.2.9", "far")))
	c.service("also", corev1.ServiceSpec{ClusterIP: "None"}, sliceOf("sql", 5432, endpointOf("10.244.1.2", "two")))
	c.check(queryCases{
		{
			"2.1.244.10.in-addr.arpa.",
			dns.TypePTR,
			"PTR db-0.db.default.svc.cluster.local., PTR two.also.default.svc.cluster.local.",
		},
		{"3.1.244.10.in-addr.arpa.", dns.TypePTR, "PTR 10-244-1-3.db.default.svc.cluster.local."},
		{reverseName("fd00:10::2"), dns.TypePTR, "PTR db-0.db.default.svc.cluster.local."},
		{"9.2.0.192.in-addr.arpa.", dns.TypePTR, "PTR far.db.default.svc.cluster.local."},
	})
	c.Set(Key{"default", "db"}, nil)
	c.check(queryCases{
		{"2.1.244.10.in-addr.arpa.", dns.TypePTR, "PTR two.also.default.svc.cluster.local."},
		{"9.2.0.192.in-addr.arpa.", dns.TypePTR, "foreign"},
	})
}

// Section 2.5. The server, not the zone, follows the alias.
func TestSection2_5ExternalName(t *testing.T) {
	c := newCluster(t)
	c.service("away", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "WWW.example.com."})
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeCNAME, dns.TypeTXT, dns.TypeANY} {
		c.check(queryCases{{"away.default.svc.cluster.local.", kind, "CNAME www.example.com."}})
	}
	c.check(queryCases{
		{"x.away.default.svc.cluster.local.", dns.TypeA, "no name in cluster.local."},
		{"_http._tcp.away.default.svc.cluster.local.", dns.TypeSRV, "no name in cluster.local."},
	})
}

// Section 2.6.
func TestSection2_6Pods(t *testing.T) {
	newCluster(t).check(queryCases{
		{"10-244-9-9.default.pod.cluster.local.", dns.TypeA, "A 10.244.9.9"},
		{"1-2-3-255.default.pod.cluster.local.", dns.TypeA, "A 1.2.3.255"},
		{"10-244-9-9.default.pod.cluster.local.", dns.TypeAAAA, "no data in cluster.local."},
		{"fd00-10--9.default.pod.cluster.local.", dns.TypeAAAA, "AAAA fd00:10::9"},
		{"10-244-9-256.default.pod.cluster.local.", dns.TypeA, "no name in cluster.local."},
		{"10-244-9-9.nowhere.pod.cluster.local.", dns.TypeA, "no name in cluster.local."},
		{"x.10-244-9-9.default.pod.cluster.local.", dns.TypeA, "no name in cluster.local."},
		{"nonsense.default.pod.cluster.local.", dns.TypeA, "no name in cluster.local."},
		{"default.pod.cluster.local.", dns.TypeA, "no data in cluster.local."},
		{"pod.cluster.local.", dns.TypeA, "no data in cluster.local."},
	})
}

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
