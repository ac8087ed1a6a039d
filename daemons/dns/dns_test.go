package dns

import (
	"context"
	"errors"
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
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/config"
	"clusterctl/daemons/run"
	"clusterctl/kube/kubernetes/fake"
)

// startUpstream starts a server for outside names.
func startUpstream(t *testing.T, answer func(*dns.Msg) *dns.Msg) string {
	t.Helper()
	var at sockets
	if err := at.open(context.Background(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	h := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		if m := answer(q); m != nil {
			m.Truncate(maxAnswerSize(w, q))
			_ = w.WriteMsg(m)
		}
	})
	for _, s := range []*dns.Server{{PacketConn: at.udp, Handler: h}, {Listener: at.tcp, Handler: h}} {
		go func() { _ = s.ActivateAndServe() }()
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return at.address().String()
}

func maxAnswerSize(w dns.ResponseWriter, q *dns.Msg) int {
	if w.LocalAddr().Network() == "tcp" {
		return dns.MaxMsgSize
	}
	if opt := q.IsEdns0(); opt != nil {
		return int(opt.UDPSize())
	}
	return dns.MinMsgSize
}

// answerRecords returns a function that answers with the matching records of the list, and denies all other names.
func answerRecords(t *testing.T, list ...string) func(*dns.Msg) *dns.Msg {
	t.Helper()
	var all []dns.RR
	for _, text := range list {
		rr, err := dns.NewRR(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rr)
	}
	soa, err := dns.NewRR("example. 60 IN SOA ns.example. h.example. 1 2 3 4 30")
	if err != nil {
		t.Fatal(err)
	}
	return func(q *dns.Msg) *dns.Msg {
		m := new(dns.Msg).SetReply(q)
		m.Rcode = dns.RcodeNameError
		for _, rr := range all {
			if !strings.EqualFold(rr.Header().Name, q.Question[0].Name) {
				continue
			}
			m.Rcode = dns.RcodeSuccess
			if rr.Header().Rrtype == q.Question[0].Qtype {
				m.Answer = append(m.Answer, rr)
			}
		}
		if len(m.Answer) == 0 {
			m.Ns = []dns.RR{soa}
		}
		return m
	}
}

// server is a running name server.
type server struct {
	t       *testing.T
	address string
	clients *fake.Clientset
	env     run.Env
	stop    func()
}

func settings(upstream ...string) config.DNS {
	cfg := config.DefaultDNS()
	cfg.BindAddress, cfg.HealthAddress, cfg.NodeName, cfg.NodeIP = "127.0.0.1:0", "", "n1", "127.0.0.1"
	cfg.ClusterCIDR, cfg.ServiceClusterIPRange = []string{
		"10.244.0.0/16",
		"fd00:10::/56",
	}, []string{
		"10.96.0.0/12",
		"fd00:20::/108",
	}
	cfg.Upstream = upstream
	return cfg
}

// startServer runs a server until the test ends.
func startServer(t *testing.T, cfg config.DNS, objects ...runtime.Object) *server {
	t.Helper()
	s := &server{
		t:       t,
		clients: fake.NewClientset(append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})...),
		env:     run.NewEnv(slog.New(slog.DiscardHandler)),
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, cfg, s.env, s.clients) }()
	ended := false
	s.stop = func() {
		if cancel(); ended {
			return
		}
		ended = true
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(s.stop)
	waitFor(t, "the endpoint to be published", func() bool {
		slice := s.endpointSlice()
		if slice == nil {
			return false
		}
		s.address = netip.AddrPortFrom(netip.MustParseAddr(slice.Endpoints[0].Addresses[0]),
			uint16(*slice.Ports[0].Port)).
			String()
		return slice.Labels[discoveryv1.LabelServiceName] == "kube-dns" && len(slice.Ports) == 2
	})
	return s
}

func (s *server) endpointSlice() *discoveryv1.EndpointSlice {
	slice, err := s.clients.DiscoveryV1().
		EndpointSlices("kube-system").
		Get(context.Background(), "kube-dns-n1", metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return slice
}

// ask sends a query over UDP, and over TCP if the answer is truncated.
func (s *server) ask(name string, kind uint16) *dns.Msg {
	s.t.Helper()
	return s.exchange("udp", new(dns.Msg).SetQuestion(name, kind))
}

func (s *server) exchange(network string, m *dns.Msg) *dns.Msg {
	s.t.Helper()
	reply, _, err := (&dns.Client{Net: network, Timeout: 10 * time.Second, UDPSize: dns.DefaultMsgSize}).Exchange(m,
		s.address)
	if err != nil {
		s.t.Fatalf("%s %s: %v", network, m.Question[0].Name, err)
	}
	return reply
}

// formatAnswer returns a short form of an answer.
func formatAnswer(m *dns.Msg) string {
	var list []string
	for _, rr := range m.Answer {
		h := rr.Header()
		list = append(list, dns.TypeToString[h.Rrtype]+" "+strings.TrimPrefix(rr.String(), h.String()))
	}
	if m.Rcode != dns.RcodeSuccess {
		list = append(list, dns.RcodeToString[m.Rcode])
	}
	return strings.Join(list, ", ")
}

func (s *server) check(name string, kind uint16, want string) {
	s.t.Helper()
	if got := formatAnswer(s.ask(name, kind)); got != want {
		s.t.Errorf("%s %s is %q, want %q", name, dns.TypeToString[kind], got, want)
	}
}

func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(2*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("timed out waiting for %s", what)
		case <-tick.C:
		}
	}
}

func service(name string, spec corev1.ServiceSpec) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: spec}
}

func externalService(name, to string) *corev1.Service {
	return service(name, corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: to})
}

// Proves S31.
func TestServerAnswersFromWatchesAndPublishesItself(t *testing.T) {
	requested := make(chan string, 100)
	world := answerRecords(t, "example.org. 60 IN A 192.0.2.1")
	s := startServer(t, settings(startUpstream(t, func(q *dns.Msg) *dns.Msg {
		if q.Question[0].Qtype != dns.TypeHINFO {
			requested <- q.Question[0].Name
		}
		return world(q)
	})), service("web", corev1.ServiceSpec{ClusterIP: "10.96.0.7"}), externalService("away", "example.org"))
	for _, network := range []string{"udp", "tcp"} {
		if got := formatAnswer(s.exchange(network,
			new(dns.Msg).SetQuestion("web.shop.svc.cluster.local.", dns.TypeA))); got != "A 10.96.0.7" {
			t.Errorf("%s: web is %q", network, got)
		}
	}
	s.check("nobody.shop.svc.cluster.local.", dns.TypeA, "NXDOMAIN")
	s.check("away.shop.svc.cluster.local.", dns.TypeA, "CNAME example.org., A 192.0.2.1")
	for range 5 {
		s.check("example.org.", dns.TypeA, "A 192.0.2.1")
		s.check("nobody.example.", dns.TypeA, "NXDOMAIN")
	}
	if len(requested) != 2 {
		t.Errorf("the other server was asked %d times", len(requested))
	}
	for _, a := range s.clients.Actions() {
		list, ok := a.(clienttesting.ListAction)
		if ok && a.GetNamespace() == "" && a.GetResource().Resource == "endpointslices" &&
			list.GetListRestrictions().Labels.String() != discoveryv1.LabelServiceName {
			t.Errorf("slices of no service are watched, by the selector %q", list.GetListRestrictions().Labels)
		}
	}
	// New objects are known at once.
	ctx, name, port, host := context.Background(), "sql", int32(5432), "db-0"
	if _, err := s.clients.CoreV1().Services("shop").Create(ctx,
		service("db", corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.clients.DiscoveryV1().EndpointSlices("shop").Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-x",
			Labels: map[string]string{discoveryv1.LabelServiceName: "db"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: ptr.To(corev1.ProtocolTCP)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.2"}, Hostname: &host},
			{Addresses: []string{"10.244.1.3"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(
		t,
		"the headless service",
		func() bool {
			return formatAnswer(s.ask("db-0.db.shop.svc.cluster.local.", dns.TypeA)) == "A 10.244.1.2"
		},
	)
}

// A stopping server removes its endpoint, so that clients use the others. The only endpoint stays, because the server
// is expected back, and queries wait in the meantime.
func TestEndpointIsRemovedUnlessItIsTheOnlyOne(t *testing.T) {
	only := startServer(t, settings("127.0.0.1:1"))
	only.stop()
	if only.endpointSlice() == nil {
		t.Error("the only endpoint was taken away")
	}
	one := startServer(t, settings("127.0.0.1:1"), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system",
			Name:      "kube-dns-n2",
			Labels:    map[string]string{discoveryv1.LabelServiceName: "kube-dns"},
		},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.2"}}},
	})
	stopped := make(chan struct{})
	go func() { defer close(stopped); one.stop() }()
	waitFor(t, "the endpoint to be taken away", func() bool { return one.endpointSlice() == nil })
	if got := formatAnswer(one.ask("web.shop.svc.cluster.local.", dns.TypeA)); got != "NXDOMAIN" {
		t.Errorf("before the proxies know, the answer is %q", got)
	}
	<-stopped
}

// If every machine has a server, pods use that of their machine. The proxy follows hints if all endpoints have them.
func TestNodeLocalEndpointServesOnlyItsMachine(t *testing.T) {
	cfg := settings("127.0.0.1:1")
	cfg.NodeLocal = true
	s := startServer(t, cfg)
	if hints := s.endpointSlice().Endpoints[0].Hints; hints == nil || len(hints.ForNodes) != 1 ||
		hints.ForNodes[0].Name != "n1" {
		t.Errorf("the hints are %v", hints)
	}
}

// As with CoreDNS, aliases are followed within the cluster and outside of it.
func TestAliasesAreFollowed(t *testing.T) {
	s := startServer(t, settings(startUpstream(t, answerRecords(t, "example.org. 60 IN A 192.0.2.1",
		"example.org. 60 IN MX 10 mail.example.org."))), service("web", corev1.ServiceSpec{ClusterIP: "10.96.0.7"}),
		externalService("one", "two.shop.svc.cluster.local"), externalService("two", "web.shop.svc.cluster.local"),
		externalService("away", "Example.org"), externalService("via", "away.shop.svc.cluster.local"),
		externalService("gone", "nobody.shop.svc.cluster.local"), externalService("lost", "nobody.example"),
		externalService("round", "about.shop.svc.cluster.local"),
		externalService("about", "round.shop.svc.cluster.local"))
	s.check("one.shop.svc.cluster.local.", dns.TypeA,
		"CNAME two.shop.svc.cluster.local., CNAME web.shop.svc.cluster.local., A 10.96.0.7")
	s.check("one.shop.svc.cluster.local.", dns.TypeAAAA,
		"CNAME two.shop.svc.cluster.local., CNAME web.shop.svc.cluster.local.")
	s.check("via.shop.svc.cluster.local.", dns.TypeA,
		"CNAME away.shop.svc.cluster.local., CNAME example.org., A 192.0.2.1")
	s.check("away.shop.svc.cluster.local.", dns.TypeMX, "CNAME example.org., MX 10 mail.example.org.")
	s.check("away.shop.svc.cluster.local.", dns.TypeCNAME, "CNAME example.org.")
	s.check("gone.shop.svc.cluster.local.", dns.TypeA, "CNAME nobody.shop.svc.cluster.local., NXDOMAIN")
	s.check("lost.shop.svc.cluster.local.", dns.TypeA, "CNAME nobody.example., NXDOMAIN")
	s.check("round.shop.svc.cluster.local.", dns.TypeA, "SERVFAIL")
	for name, zone := range map[string]string{"gone": "cluster.local.", "lost": "example."} {
		if m := s.ask(name+".shop.svc.cluster.local.", dns.TypeA); len(m.Ns) != 1 || m.Ns[0].Header().Name != zone ||
			!m.Authoritative {
			t.Errorf("%s is denied by %v", name, m.Ns)
		}
	}
	broken := startServer(t, settings("127.0.0.1:1"), externalService("away", "example.org"))
	broken.check("away.shop.svc.cluster.local.", dns.TypeA, "CNAME example.org., SERVFAIL")
}

func TestOtherClassesAndTransfersAreRefused(t *testing.T) {
	s := startServer(t, settings("127.0.0.1:1"), service("web", corev1.ServiceSpec{ClusterIP: "10.96.0.7"}))
	ask := func(kind, class uint16) string {
		m := new(dns.Msg).SetQuestion("web.shop.svc.cluster.local.", kind)
		m.Question[0].Qclass = class
		return formatAnswer(s.exchange("tcp", m))
	}
	for _, c := range []struct {
		kind, class uint16
		want        string
	}{
		{dns.TypeA, dns.ClassINET, "A 10.96.0.7"}, {dns.TypeA, dns.ClassANY, "A 10.96.0.7"},
		{dns.TypeA, dns.ClassCHAOS, "REFUSED"}, {dns.TypeA, 7, "REFUSED"},
		{dns.TypeAXFR, dns.ClassINET, "REFUSED"}, {dns.TypeIXFR, dns.ClassINET, "REFUSED"},
		{dns.TypeMAILB, dns.ClassINET, "NOTIMP"}, {dns.TypeMAILA, dns.ClassINET, "NOTIMP"},
	} {
		if got := ask(c.kind, c.class); got != c.want {
			t.Errorf("type %d of class %d: %s, want %s", c.kind, c.class, got, c.want)
		}
	}
	update := new(dns.Msg).SetUpdate("cluster.local.")
	if got := s.exchange("udp", update); got.Rcode != dns.RcodeNotImplemented || got.Opcode != dns.OpcodeUpdate {
		t.Errorf("an update has the answer %v", got)
	}
	later := new(dns.Msg).SetQuestion("web.shop.svc.cluster.local.", dns.TypeA).SetEdns0(1232, false)
	later.IsEdns0().SetVersion(1)
	if got := s.exchange("udp", later); got.Rcode != dns.RcodeBadVers || len(got.Answer) > 0 {
		t.Errorf("EDNS of a later version has the answer %v", got)
	}
}

func TestLongAnswersAreSentOverTCP(t *testing.T) {
	var ends []discoveryv1.Endpoint
	for i := range 250 {
		ends = append(ends,
			discoveryv1.Endpoint{Addresses: []string{netip.AddrFrom4([4]byte{10, 244, 1, byte(i)}).String()}})
	}
	var outside []string
	for i := range 250 {
		outside = append(outside, "long.example. 60 IN A "+netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}).String())
	}
	s := startServer(
		t,
		settings(startUpstream(t, answerRecords(t, outside...))),
		service("db", corev1.ServiceSpec{ClusterIP: "None"}),
		&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop",
				Name:      "db-x",
				Labels:    map[string]string{discoveryv1.LabelServiceName: "db"},
			}, Endpoints: ends},
	)
	for _, name := range []string{"db.shop.svc.cluster.local.", "long.example."} {
		for _, c := range []struct {
			network string
			edns    uint16
			size    int
		}{{"udp", 0, 512}, {"udp", 900, 900}, {"udp", 4096, 1232}, {"tcp", 0, 65535}, {"tcp", 512, 65535}} {
			m := new(dns.Msg).SetQuestion(name, dns.TypeA)
			if c.edns > 0 {
				m.SetEdns0(c.edns, false)
			}
			got := s.exchange(c.network, m)
			got.Compress = true
			if cut := c.network == "udp"; got.Truncated != cut || got.Len() > c.size || cut && got.Len() < c.size-40 ||
				!cut && len(got.Answer) != 250 ||
				(got.IsEdns0() != nil) != (c.edns > 0) {
				t.Errorf("%s over %s with %d: %d records, %d bytes, truncated: %v", name, c.network, c.edns,
					len(got.Answer), got.Len(), got.Truncated)
			}
		}
	}
}

// Go's resolver works for all record types that it supports and both families.
func TestGoResolver(t *testing.T) {
	name, port := "sql", int32(5432)
	slice := func(name2, host, address string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop",
				Name:      name2,
				Labels:    map[string]string{discoveryv1.LabelServiceName: "db"},
			},
			Ports:     []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: ptr.To(corev1.ProtocolTCP)}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}, Hostname: &host}},
		}
	}
	s := startServer(
		t,
		settings(startUpstream(t, answerRecords(t, "example.org. 60 IN A 192.0.2.1", "example.org. 60 IN TXT \"hello\"",
			"example.org. 60 IN MX 10 mail.example.org.", "example.org. 60 IN NS ns.example.org."))),
		service(
			"web",
			corev1.ServiceSpec{
				ClusterIP:  "10.96.0.7",
				ClusterIPs: []string{"10.96.0.7", "fd00:20::7"},
				Ports:      []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
			},
		),
		service("db", corev1.ServiceSpec{ClusterIP: "None"}),
		slice("a", "db-0", "10.244.1.2"),
		slice("b", "db-0", "fd00:10::2"),
		externalService("away", "example.org"),
	)
	ctx := context.Background()
	for _, network := range []string{"udp", "tcp"} {
		r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, s.address)
		}}
		same := func(what string, got []string, err error, want ...string) {
			t.Helper()
			slices.Sort(got)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s, %s: %v, %v; want %v", network, what, got, err, want)
			}
		}
		got, err := r.LookupHost(ctx, "web.shop.svc.cluster.local.")
		same("addresses", got, err, "10.96.0.7", "fd00:20::7")
		got, err = r.LookupHost(ctx, "db-0.db.shop.svc.cluster.local.")
		same("an endpoint's addresses", got, err, "10.244.1.2", "fd00:10::2")
		cname, err := r.LookupCNAME(ctx, "away.shop.svc.cluster.local.")
		same("an alias", []string{cname}, err, "example.org.")
		got, err = r.LookupHost(ctx, "away.shop.svc.cluster.local.")
		same("an alias' addresses", got, err, "192.0.2.1")
		got, err = r.LookupAddr(ctx, "10.96.0.7")
		same("the name of an address", got, err, "web.shop.svc.cluster.local.")
		got, err = r.LookupAddr(ctx, "fd00:10::2")
		same("the name of an address", got, err, "db-0.db.shop.svc.cluster.local.")
		got, err = r.LookupTXT(ctx, "dns-version.cluster.local.")
		same("text", got, err, "1.1.0")
		got, err = r.LookupTXT(ctx, "example.org.")
		same("text", got, err, "hello")
		_, srv, err := r.LookupSRV(ctx, "http", "tcp", "web.shop.svc.cluster.local.")
		if err != nil || len(srv) != 1 || srv[0].Port != 80 || srv[0].Target != "web.shop.svc.cluster.local." {
			t.Errorf("%s: ports %v, %v", network, srv, err)
		}
		mx, err := r.LookupMX(ctx, "example.org.")
		if err != nil || len(mx) != 1 || mx[0].Host != "mail.example.org." {
			t.Errorf("%s: mail %v, %v", network, mx, err)
		}
		ns, err := r.LookupNS(ctx, "cluster.local.")
		if err != nil || len(ns) != 1 || ns[0].Host != "ns.dns.cluster.local." {
			t.Errorf("%s: servers %v, %v", network, ns, err)
		}
		var missing *net.DNSError
		if _, err = r.LookupHost(ctx, "nobody.shop.svc.cluster.local."); err == nil || !errors.As(err, &missing) ||
			!missing.IsNotFound {
			t.Errorf("%s: an unknown client is %v", network, err)
		}
	}
}
