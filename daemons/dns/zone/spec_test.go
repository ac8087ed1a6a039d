package zone

import (
	"slices"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

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
