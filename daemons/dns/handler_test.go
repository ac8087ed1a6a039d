package dns

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/dns/wire"
)

// A malformed message gets an error response if it has an ID. A message that may itself be a response gets none,
// because two servers would otherwise answer each other forever.
func TestMalformedQueries(t *testing.T) {
	s := startServer(t, settings("127.0.0.1:1"), service("web", corev1.ServiceSpec{ClusterIP: "10.96.0.7"}))
	conn, err := net.Dial("udp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	good := packQuery(t, "web.shop.svc.cluster.local.", dns.TypeA)
	change := func(f func([]byte)) []byte {
		b := append([]byte(nil), good...)
		f(b)
		return b
	}
	for _, bad := range []struct {
		message []byte
		want    string
	}{
		{[]byte("x"), ""}, {change(func(b []byte) { b[2] |= 0x80 }), ""}, {make([]byte, 5000), ""},
		{good[:20], "FORMERR"}, {change(func(b []byte) { b[5] = 3 }), "FORMERR"},
		{change(func(b []byte) { b[12] = 0xff }), "FORMERR"}, {change(func(b []byte) { b[2] = 2 << 3 }), "NOTIMP"},
	} {
		if _, err := conn.Write(bad.message); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(good); err != nil {
			t.Fatal(err)
		}
		want := []string{bad.want, "A 10.96.0.7"}
		if bad.want == "" {
			want = want[1:]
		}
		for _, w := range want {
			buf, m := make([]byte, 4096), new(dns.Msg)
			_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
			n, err := conn.Read(buf)
			if err == nil {
				err = m.Unpack(buf[:n])
			}
			if err != nil || formatAnswer(m) != w {
				t.Errorf("%x: got %s, %v; want %s", bad.message[:min(20, len(bad.message))], formatAnswer(m), err, w)
			}
		}
	}
}

// On a machine with several addresses, the answer comes from the queried address, because clients accept no other.
func TestAnswersAreSentFromTheQueriedAddress(t *testing.T) {
	cfg := settings(startUpstream(t, answerRecords(t, "example.org. 60 IN A 192.0.2.1")))
	cfg.BindAddress = "0.0.0.0:0"
	s := startServer(t, cfg, service("web", corev1.ServiceSpec{ClusterIP: "10.96.0.7"}))
	port := netip.MustParseAddrPort(s.address).Port()
	for _, ip := range []string{"127.0.0.1", "127.0.0.2", "127.3.2.1", "::1"} {
		s.address = netip.AddrPortFrom(netip.MustParseAddr(ip), port).String()
		for _, network := range []string{"udp", "tcp"} {
			for name, want := range map[string]string{"web.shop.svc.cluster.local.": "A 10.96.0.7",
				"example.org.": "A 192.0.2.1"} {
				if got := formatAnswer(s.exchange(network, new(dns.Msg).SetQuestion(name, dns.TypeA))); got != want {
					t.Errorf("%s at %s over %s is %q", name, ip, network, got)
				}
			}
		}
	}
}

// metricValue returns the sum of a metric's series that have all of the labels, or -1 if there are none.
func metricValue(t *testing.T, from *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := -1.0
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() != name || !hasLabels(m, labels) {
				continue
			}
			sum = max(sum, 0) + m.GetCounter().
				GetValue() +
				m.GetGauge().
					GetValue() +
				float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

func hasLabels(m *dto.Metric, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		found := false
		for _, l := range m.Label {
			found = found || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}

// The metrics have CoreDNS' names and labels, because rules and dashboards use them. Those that are used as divisors
// exist from the start.
func TestMetricsHaveTheNamesOfCoreDNS(t *testing.T) {
	world := startUpstream(t, answerRecords(t, "example.org. 60 IN A 192.0.2.1"))
	s := startServer(t, settings(world), service("web", corev1.ServiceSpec{ClusterIP: "10.96.0.7"}))
	for _, name := range []string{"coredns_dns_requests_total", "coredns_dns_responses_total",
		"coredns_dns_request_duration_seconds", "coredns_panics_total", "coredns_build_info",
		"coredns_cache_hits_total", "coredns_cache_misses_total", "coredns_cache_requests_total",
		"coredns_cache_entries", "coredns_cache_served_stale_total",
		"coredns_forward_healthcheck_broken_total", "coredns_forward_max_concurrent_rejects_total",
		"coredns_plugin_enabled"} {
		if metricValue(t, s.env.Metrics, name) < 0 {
			t.Errorf("%s is not there from the start", name)
		}
	}
	for range 3 {
		s.ask("web.shop.svc.cluster.local.", dns.TypeA)
		s.ask("example.org.", dns.TypeA)
	}
	s.exchange("tcp", new(dns.Msg).SetQuestion("nobody.shop.svc.cluster.local.", 65280).SetEdns0(1232, true))
	cluster, all := []string{
		"server",
		"dns://:53",
		"zone",
		"cluster.local.",
		"view",
		"",
	}, []string{
		"server",
		"dns://:53",
		"zones",
		".",
		"view",
		"",
	}
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"coredns_dns_requests_total", append(cluster, "proto", "udp", "family", "1", "type", "A"), 3},
		{"coredns_dns_requests_total", append(cluster, "proto", "tcp", "family", "1", "type", "other"), 1},
		{"coredns_dns_requests_total", []string{"zone", ".", "proto", "udp", "type", "A"}, 3},
		{"coredns_dns_responses_total", append(cluster, "rcode", "NOERROR", "plugin", "kubernetes"), 3},
		{"coredns_dns_responses_total", append(cluster, "rcode", "NXDOMAIN", "plugin", "kubernetes"), 1},
		{"coredns_dns_responses_total", []string{"zone", ".", "rcode", "NOERROR", "plugin", "cache"}, 2},
		{"coredns_dns_responses_total", []string{"zone", ".", "rcode", "NOERROR", "plugin", "forward"}, 1},
		{"coredns_dns_do_requests_total", cluster, 1},
		{"coredns_dns_request_duration_seconds", cluster, 4},
		{"coredns_dns_request_size_bytes", append(cluster, "proto", "tcp"), 1},
		{"coredns_dns_response_size_bytes", append(cluster, "proto", "udp"), 3},
		{"coredns_cache_hits_total", append(all, "type", "success"), 2},
		{"coredns_cache_misses_total", all, 1},
		{"coredns_cache_requests_total", all, 3},
		{"coredns_cache_entries", append(all, "type", "success"), 1},
		{"coredns_forward_responses_total", []string{"to", world, "rcode", "NOERROR"}, 1},
		{"coredns_forward_request_duration_seconds", []string{"to", world, "rcode", "NOERROR"}, 1},
		{"coredns_proxy_request_duration_seconds", []string{"proxy_name", "forward", "to", world, "rcode", "NOERROR"},
			1},
		{"coredns_panics_total", nil, 0},
	} {
		if got := metricValue(t, s.env.Metrics, c.name, c.labels...); got != c.want {
			t.Errorf("%s %v is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}

func TestQueriesAreLoggedWhenConfigured(t *testing.T) {
	var log strings.Builder
	h, w := newHandler(t), new(workspace)
	for _, h.isLoggingQueries = range []bool{false, true} {
		log.Reset()
		h.log = slog.New(slog.NewTextHandler(&log, nil))
		h.respond(context.Background(), w, nil, packQuery(t, "nobody.shop.svc.cluster.local.", dns.TypeAAAA),
			sender{addr: netip.MustParseAddrPort("10.244.0.9:4000")}, false, time.Now())
		if logged := strings.Contains(log.String(), "client=10.244.0.9:4000 tcp=false type=AAAA "+
			"name=nobody.shop.svc.cluster.local. rcode=NXDOMAIN"); logged != h.isLoggingQueries {
			t.Errorf("wanted: %v, written: %s", h.isLoggingQueries, log.String())
		}
	}
}

func FuzzRespondNeverPanics(f *testing.F) {
	h := newHandler(f)
	for _, m := range queryMix {
		f.Add(packQuery(f, m.name, m.kind), false)
	}
	f.Add([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 1}, true)
	f.Fuzz(func(t *testing.T, message []byte, tcp bool) {
		w := new(workspace)
		reply, later := h.respond(context.Background(), w, nil, message, sender{tcp: tcp}, false, time.Now())
		if later {
			reply, _ = h.respond(context.Background(), w, nil, message, sender{tcp: tcp}, true, time.Now())
		}
		if len(reply) == 0 {
			return
		}
		if err := new(dns.Msg).Unpack(reply); err != nil {
			t.Fatalf("the answer %x cannot be read: %v", reply, err)
		}
		if !tcp && len(reply) > wire.UDPSize {
			t.Fatalf("%d bytes", len(reply))
		}
		if metricValue(t, newRegistry(h), "coredns_panics_total") != 0 {
			t.Fatal("the server failed")
		}
	})
}

func newRegistry(h *handler) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(h.metrics.panics)
	return r
}
