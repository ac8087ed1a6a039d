package dns

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
)

const domain = "cluster.local."

func zone() *Records {
	z := NewRecords(domain)
	z.SetNamespace("shop", true)
	addr := netip.MustParseAddr
	z.Set(Key{"shop", "web"}, &Service{ClusterIPs: []netip.Addr{addr("10.96.0.7"), addr("fd00::7")}, Ports: []Port{{"http", "tcp", 80}, {"dns", "udp", 53}}})
	z.Set(Key{"shop", "db"}, &Service{Ports: []Port{{"sql", "tcp", 5432}}, Endpoints: []Endpoint{
		{"db-0", addr("10.244.1.2"), []Port{{"sql", "tcp", 5432}}}, {"10-244-1-3", addr("10.244.1.3"), []Port{{"sql", "tcp", 5433}}}}})
	z.Set(Key{"shop", "none"}, &Service{Ports: []Port{{"x", "tcp", 1}}})
	z.Set(Key{"shop", "away"}, &Service{External: "example.org."})
	return z
}

func show(rrs []dns.RR) string {
	var list []string
	for _, rr := range rrs {
		switch rr := rr.(type) {
		case *dns.SRV:
			list = append(list, fmt.Sprintf("SRV %d %s", rr.Port, rr.Target))
		case *dns.PTR:
			list = append(list, "PTR "+rr.Ptr)
		case *dns.CNAME:
			list = append(list, "CNAME "+rr.Target)
		case *dns.A:
			list = append(list, rr.A.String())
		case *dns.AAAA:
			list = append(list, rr.AAAA.String())
		case *dns.TXT:
			list = append(list, strings.Join(rr.Txt, " "))
		}
	}
	return strings.Join(list, ", ")
}

func TestNamesOfTheClusterS31(t *testing.T) {
	z := zone()
	for _, c := range []struct {
		name string
		kind uint16
		want string // records; nx no such name; foreign
	}{
		{"web.shop.svc.cluster.local.", dns.TypeA, "10.96.0.7"},
		{"WEB.Shop.svc.cluster.LOCAL.", dns.TypeA, "10.96.0.7"},
		{"web.shop.svc.cluster.local.", dns.TypeAAAA, "fd00::7"},
		{"web.shop.svc.cluster.local.", dns.TypeMX, ""},
		{"_http._tcp.web.shop.svc.cluster.local.", dns.TypeSRV, "SRV 80 web.shop.svc.cluster.local."},
		{"_http._udp.web.shop.svc.cluster.local.", dns.TypeSRV, "nx"},
		{"_tcp.web.shop.svc.cluster.local.", dns.TypeSRV, ""},
		{"_http._tcp.web.shop.svc.cluster.local.", dns.TypeA, ""},
		{"x.web.shop.svc.cluster.local.", dns.TypeA, "nx"},
		{"db.shop.svc.cluster.local.", dns.TypeA, "10.244.1.2, 10.244.1.3"},
		{"db.shop.svc.cluster.local.", dns.TypeAAAA, ""},
		{"db-0.db.shop.svc.cluster.local.", dns.TypeA, "10.244.1.2"},
		{"10-244-1-3.db.shop.svc.cluster.local.", dns.TypeA, "10.244.1.3"},
		{"db-1.db.shop.svc.cluster.local.", dns.TypeA, "nx"},
		{"_sql._tcp.db.shop.svc.cluster.local.", dns.TypeSRV, "SRV 5432 db-0.db.shop.svc.cluster.local., SRV 5433 10-244-1-3.db.shop.svc.cluster.local."},
		{"none.shop.svc.cluster.local.", dns.TypeA, "nx"},
		{"away.shop.svc.cluster.local.", dns.TypeA, "CNAME example.org."},
		{"x.away.shop.svc.cluster.local.", dns.TypeA, "nx"},
		{"nobody.shop.svc.cluster.local.", dns.TypeA, "nx"},
		{"web.nowhere.svc.cluster.local.", dns.TypeA, "nx"},
		{"shop.svc.cluster.local.", dns.TypeA, ""},
		{"nowhere.svc.cluster.local.", dns.TypeA, "nx"},
		{"svc.cluster.local.", dns.TypeA, ""},
		{"cluster.local.", dns.TypeA, ""},
		{"example.org.svc.cluster.local.", dns.TypeA, "nx"},
		{"example.org.cluster.local.", dns.TypeA, "nx"},
		{"example.org.", dns.TypeA, "foreign"},
		{"notcluster.local.", dns.TypeA, "foreign"},
		{"10-244-9-9.shop.pod.cluster.local.", dns.TypeA, "10.244.9.9"},
		{"fd00--9.shop.pod.cluster.local.", dns.TypeAAAA, "fd00::9"},
		{"10-244-9-9.nowhere.pod.cluster.local.", dns.TypeA, "nx"},
		{"nonsense.shop.pod.cluster.local.", dns.TypeA, "nx"},
		{"7.0.96.10.in-addr.arpa.", dns.TypePTR, "PTR web.shop.svc.cluster.local."},
		{"2.1.244.10.in-addr.arpa.", dns.TypePTR, "PTR db-0.db.shop.svc.cluster.local."},
		{"7.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa.", dns.TypePTR, "PTR web.shop.svc.cluster.local."},
		{"1.1.1.1.in-addr.arpa.", dns.TypePTR, "foreign"},
		{"dns-version.cluster.local.", dns.TypeTXT, "1.1.0"},
	} {
		t.Run(c.name+dns.TypeToString[c.kind], func(t *testing.T) {
			a := Resolve(z, domain, dns.Question{Name: c.name, Qtype: c.kind, Qclass: dns.ClassINET})
			got := show(a.Records)
			if a.NoName {
				got = "nx"
			} else if a.Foreign {
				got = "foreign"
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestServiceThatIsGoneHasNoReverseName(t *testing.T) {
	z := zone()
	z.Set(Key{"shop", "db"}, nil)
	if names := z.Reverse(netip.MustParseAddr("10.244.1.2")); len(names) != 0 {
		t.Errorf("it still is %v", names)
	}
	if names := z.Reverse(netip.MustParseAddr("10.96.0.7")); len(names) != 1 {
		t.Errorf("another's is %v", names)
	}
}

func FuzzResolveNeverPanics(f *testing.F) {
	z := zone()
	f.Add("web.shop.svc.cluster.local.")
	f.Add("..svc.cluster.local.")
	f.Add("_._.db.shop.svc.cluster.local.")
	f.Add(".pod.cluster.local.")
	f.Fuzz(func(t *testing.T, name string) {
		for _, kind := range []uint16{dns.TypeA, dns.TypeSRV, dns.TypePTR, dns.TypeANY} {
			Resolve(z, domain, dns.Question{Name: name, Qtype: kind, Qclass: dns.ClassINET})
		}
	})
}

func BenchmarkResolve(b *testing.B) {
	z := zone()
	q := dns.Question{Name: "web.shop.svc.cluster.local.", Qtype: dns.TypeA, Qclass: dns.ClassINET}
	b.ReportAllocs()
	for b.Loop() {
		Resolve(z, domain, q)
	}
}

// other starts a server that stands for the world outside, and counts questions.
func other(t *testing.T, questions chan string) string {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		select {
		case questions <- q.Question[0].Name:
		default:
		}
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Name == "example.org." {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: "example.org.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(192, 0, 2, 1)}}
		} else {
			m.Rcode = dns.RcodeNameError
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = s.ActivateAndServe() }()
	t.Cleanup(func() { _ = s.Shutdown() })
	return pc.LocalAddr().String()
}

func TestServerAnswersFromWatchesAndPublishesItselfS31(t *testing.T) {
	name, port, proto := "sql", int32(5432), corev1.ProtocolTCP
	client := fake.NewClientset(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.7"}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "away"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"}},
	)
	questions := make(chan string, 100)
	cfg := config.DefaultDNS()
	cfg.BindAddress, cfg.HealthAddress, cfg.NodeName, cfg.NodeIP = "127.0.0.1:0", "", "n1", "127.0.0.1"
	cfg.Upstream = []string{other(t, questions)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	env := run.NewEnv(slog.New(slog.DiscardHandler))
	go func() { done <- serve(ctx, cfg, env, client) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		list, _ := client.DiscoveryV1().EndpointSlices("kube-system").List(context.Background(), metav1.ListOptions{})
		if len(list.Items) != 0 {
			t.Error("the endpoint was not taken away")
		}
	}()
	var address string
	wait(t, "the endpoint to be published", func() bool {
		s, err := client.DiscoveryV1().EndpointSlices("kube-system").Get(context.Background(), "kube-dns-n1", metav1.GetOptions{})
		if err != nil {
			return false
		}
		address = fmt.Sprintf("%s:%d", s.Endpoints[0].Addresses[0], *s.Ports[0].Port)
		return s.Labels[discoveryv1.LabelServiceName] == "kube-dns" && len(s.Ports) == 2
	})
	ask := func(network, name string, kind uint16) (string, int) {
		m, _, err := (&dns.Client{Net: network, Timeout: 2 * time.Second}).Exchange(new(dns.Msg).SetQuestion(name, kind), address)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return show(m.Answer), m.Rcode
	}
	for _, network := range []string{"udp", "tcp"} {
		if got, _ := ask(network, "web.shop.svc.cluster.local.", dns.TypeA); got != "10.96.0.7" {
			t.Errorf("%s: web is %q", network, got)
		}
	}
	if _, code := ask("udp", "nobody.shop.svc.cluster.local.", dns.TypeA); code != dns.RcodeNameError {
		t.Errorf("nobody has code %d", code)
	}
	if got, _ := ask("udp", "away.shop.svc.cluster.local.", dns.TypeA); got != "CNAME example.org., 192.0.2.1" {
		t.Errorf("away is %q", got)
	}
	for range 5 {
		if got, _ := ask("udp", "example.org.", dns.TypeA); got != "192.0.2.1" {
			t.Errorf("example.org is %q", got)
		}
	}
	if len(questions) != 1 {
		t.Errorf("the other server was asked %d times", len(questions))
	}
	if _, code := ask("udp", "nobody.example.", dns.TypeA); code != dns.RcodeNameError {
		t.Errorf("nobody.example has code %d", code)
	}
	// What comes later is known at once.
	if _, err := client.CoreV1().Services("shop").Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	host := "db-0"
	if _, err := client.DiscoveryV1().EndpointSlices("shop").Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "db-x", Labels: map[string]string{discoveryv1.LabelServiceName: "db"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &proto}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.2"}, Hostname: &host}, {Addresses: []string{"10.244.1.3"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t, "the headless service", func() bool {
		got, _ := ask("udp", "db-0.db.shop.svc.cluster.local.", dns.TypeA)
		return got == "10.244.1.2"
	})
	first := map[string]bool{}
	wait(t, "each of its addresses to come first", func() bool {
		got, _ := ask("udp", "db.shop.svc.cluster.local.", dns.TypeA)
		first[got] = true
		return first["10.244.1.2, 10.244.1.3"] && first["10.244.1.3, 10.244.1.2"]
	})
}

func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline, tick := time.After(10*time.Second), time.NewTicker(2*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}

func TestCacheIsBoundedAndForgets(t *testing.T) {
	now := time.Unix(1000, 0)
	c := newAnswers(func() time.Time { return now }, 30*time.Second, 10*time.Second)
	msg := func(ttl uint32) *dns.Msg {
		m := new(dns.Msg).SetQuestion("a.", dns.TypeA)
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: "a.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: ttl}}}
		return m
	}
	q := question{name: "a.", kind: dns.TypeA}
	c.put(q, msg(20))
	now = now.Add(5 * time.Second)
	if got := c.get(q); got == nil || got.Answer[0].Header().Ttl != 15 {
		t.Errorf("got %v", got)
	}
	now = now.Add(15 * time.Second)
	if c.get(q) != nil {
		t.Error("it was kept for too long")
	}
	for i := range maxKept + 10 {
		c.put(question{name: fmt.Sprint(i)}, msg(20))
	}
	if c.order.Len() != maxKept || len(c.items) != maxKept || c.get(question{name: "0"}) != nil {
		t.Errorf("%d are kept", c.order.Len())
	}
}

func TestUpstreamLeavesThisServerOut(t *testing.T) {
	got, err := upstream([]string{"192.0.2.1", "[2001:db8::1]:5353"}, "", nil)
	if err != nil || !slices.Equal(got, []string{"192.0.2.1:53", "[2001:db8::1]:5353"}) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := upstream([]string{"name.example"}, "", nil); err == nil {
		t.Error("a name was taken for an address")
	}
}
