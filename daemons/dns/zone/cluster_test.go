package zone

import (
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

func formatRecords(list []dns.RR) (out []string) {
	for _, rr := range list {
		out = append(out, strings.Join(strings.Fields(rr.String()), " "))
	}
	return out
}
