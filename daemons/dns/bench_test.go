package dns

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/dns/upstream"
	"clusterctl/daemons/dns/wire"
	"clusterctl/daemons/dns/zone"
)

// newHandler returns a handler over a zone with many services. servers answer outside names.
func newHandler(t testing.TB, servers ...string) *handler {
	t.Helper()
	z, err := zone.New(
		zone.Config{
			Domain:   "cluster.local",
			TTL:      30 * time.Second,
			Networks: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	z.SetNamespace("shop", true)
	put := func(name string, spec corev1.ServiceSpec, ends ...discoveryv1.Endpoint) {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: spec}
		z.Set(zone.Key{Namespace: "shop", Name: name}, zone.NewService(z.Domain(), s,
			[]*discoveryv1.EndpointSlice{{Endpoints: ends}}))
	}
	for i := range 10000 {
		put(
			fmt.Sprintf("web-%d", i),
			corev1.ServiceSpec{
				ClusterIP: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}).String(),
				Ports:     []corev1.ServicePort{{Name: "http", Port: 80}},
			},
		)
	}
	var ends []discoveryv1.Endpoint
	for i := range 50 {
		ends = append(ends,
			discoveryv1.Endpoint{Addresses: []string{netip.AddrFrom4([4]byte{10, 244, 0, byte(i)}).String()}})
	}
	put("db", corev1.ServiceSpec{ClusterIP: "None"}, ends...)
	r, err := upstream.New(
		upstream.Config{
			Servers:        servers,
			ResolvConf:     "/nonexistent",
			MaxTTL:         time.Hour,
			MaxNegativeTTL: time.Hour,
			Log:            slog.New(slog.DiscardHandler),
			Name:           serverName,
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	return &handler{
		zone:     z,
		resolver: r,
		clients:  &clients{isUnrestricted: true},
		metrics:  newMetrics(serverName, "cluster.local."),
		log:      slog.New(slog.DiscardHandler),
	}
}

func packQuery(t testing.TB, name string, kind uint16) []byte {
	t.Helper()
	b, err := new(dns.Msg).SetQuestion(name, kind).SetEdns0(1232, false).Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// queryMix holds the queries of clients in a cluster: services, names that their search paths append, endpoints, and
// outside names.
var queryMix = []struct {
	name string
	kind uint16
}{{"web-77.shop.svc.cluster.local.", dns.TypeA}, {"web-77.shop.svc.cluster.local.", dns.TypeAAAA},
	{"example.org.shop.svc.cluster.local.", dns.TypeA}, {"db.shop.svc.cluster.local.", dns.TypeA},
	{
		"_http._tcp.web-9.shop.svc.cluster.local.",
		dns.TypeSRV,
	}, {"1.0.96.10.in-addr.arpa.", dns.TypePTR}, {"example.org.", dns.TypeA}}

func BenchmarkAnswer(b *testing.B) {
	h := newHandler(b, startBenchUpstream(b))
	c := sender{addr: netip.MustParseAddrPort("10.244.0.9:4000")}
	for _, m := range queryMix {
		b.Run(fmt.Sprintf("%s/%s", m.name, dns.TypeToString[m.kind]), func(b *testing.B) {
			q, w, out := packQuery(b, m.name, m.kind), new(workspace), make([]byte, 0, wire.UDPSize)
			if reply, _ := h.respond(context.Background(), w, out, q, c, true, time.Now()); len(reply) == 0 {
				b.Fatal("no answer")
			}
			b.ReportAllocs()
			for b.Loop() {
				h.respond(context.Background(), w, out, q, c, false, time.Now())
			}
		})
	}
}

// BenchmarkLibraryAnswer decodes a query and encodes the response to it with github.com/miekg/dns. It looks up nothing.
func BenchmarkLibraryAnswer(b *testing.B) {
	m := queryMix[0]
	q, out := packQuery(b, m.name, m.kind), make([]byte, wire.UDPSize)
	b.ReportAllocs()
	for b.Loop() {
		var query dns.Msg
		if err := query.Unpack(q); err != nil {
			b.Fatal(err)
		}
		reply := new(dns.Msg).SetReply(&query)
		reply.Authoritative = true
		reply.Answer = []dns.RR{&dns.A{A: net.IPv4(10, 96, 0, 77),
			Hdr: dns.RR_Header{Name: m.name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 5}}}
		if _, err := reply.SetEdns0(wire.UDPSize, false).PackBuffer(out); err != nil {
			b.Fatal(err)
		}
	}
}

func startBenchUpstream(b *testing.B) string {
	b.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.Answer = []dns.RR{
			&dns.A{
				Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 3600},
				A:   net.IPv4(192, 0, 2, 1),
			},
		}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = s.ActivateAndServe() }()
	b.Cleanup(func() { _ = s.Shutdown() })
	return pc.LocalAddr().String()
}

// BenchmarkOverUDP runs a server in this process and clients in another. It reports the cost of a query for the server
// alone: the CPU time of its process, including the kernel's work.
func BenchmarkOverUDP(b *testing.B) {
	for _, clients := range []int{1, 16, 64} {
		b.Run(strconv.Itoa(clients), func(b *testing.B) {
			h := newHandler(b, startBenchUpstream(b))
			s, err := openSockets(b.Context(), "127.0.0.1:0", h.log)
			if err != nil {
				b.Fatal(err)
			}
			defer s.close()
			udp, err := newUDPServer(h, s.udp)
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			var servers sync.WaitGroup
			for range 2 {
				servers.Go(func() { _ = udp.serve(ctx, s.stored.Load) })
			}
			client := selfCommand(b, "BENCH_CLIENT="+s.address().String(), "BENCH_CLIENTS="+strconv.Itoa(clients),
				"BENCH_QUERIES="+strconv.Itoa(b.N))
			before := cpuTime(b)
			b.ResetTimer()
			if out, err := client.CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
			b.StopTimer()
			b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/query")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "queries/s")
			cancel()
			servers.Wait()
		})
	}
}

func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// sendQueries is the client of the benchmark. Each of its sockets has several queries in flight.
func sendQueries(address string, clients, queries int) error {
	var left atomic.Int64
	left.Store(int64(queries))
	var g sync.WaitGroup
	failed := make(chan error, clients)
	for range clients {
		g.Go(func() {
			conn, err := net.Dial("udp", address)
			if err != nil {
				failed <- err
				return
			}
			defer conn.Close()
			const window = 8
			buf, open := make([]byte, 4096), 0
			for i := 0; ; i++ {
				more := left.Add(-1) >= 0
				if more {
					m := queryMix[i%len(queryMix)]
					q, err := new(dns.Msg).SetQuestion(m.name, m.kind).SetEdns0(1232, false).Pack()
					if err == nil {
						_, err = conn.Write(q)
					}
					if err != nil {
						failed <- err
						return
					}
					open++
				}
				for open > 0 && (!more || open >= window) {
					_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
					if _, err := conn.Read(buf); err != nil {
						failed <- err
						return
					}
					open--
				}
				if !more {
					return
				}
			}
		})
	}
	g.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func runBenchClient() {
	clients, _ := strconv.Atoi(os.Getenv("BENCH_CLIENTS"))
	queries, _ := strconv.Atoi(os.Getenv("BENCH_QUERIES"))
	if err := sendQueries(os.Getenv("BENCH_CLIENT"), clients, queries); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
