package dns

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"clusterctl/daemons/config"
	"clusterctl/kube/kubernetes/fake"
)

func machineAt(name string, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// Strangers get neither the cluster's names nor the answers of other servers, over UDP and TCP. Their queries are
// refused and counted.
// Proves S30.
func TestClientsOutsideTheClusterAreRefused(t *testing.T) {
	cfg := settings()
	cfg.AllowedClients = []string{"172.16.0.0/12"}
	who, err := newClients(cfg)
	if err != nil {
		t.Fatal(err)
	}
	who.setMachines([]any{machineAt("n1", "192.168.7.11", "2001:db8::11")})
	h := newHandler(t, startUpstream(t, answerRecords(t, "example.org. 60 IN A 192.0.2.7")))
	h.clients = who
	refused := 0.0
	for from, answered := range map[string]bool{
		"10.244.3.9": true, "fd00:10::9": true, "::ffff:10.244.3.9": true, // pods
		"10.96.0.9":    true,                                                       // a service
		"192.168.7.11": true, "2001:db8::11": true, "127.0.0.1": true, "::1": true, // machines
		"172.20.0.1":    true, // configured
		"192.168.7.200": false, "198.51.100.9": false, "2001:db8::12": false, "::ffff:198.51.100.9": false,
	} {
		for _, name := range []string{"web-7.shop.svc.cluster.local.", "example.org.", "7.0.96.10.in-addr.arpa."} {
			kind := dns.TypeA
			if name == "7.0.96.10.in-addr.arpa." {
				kind = dns.TypePTR
			}
			for _, tcp := range []bool{false, true} {
				reply, _ := h.respond(t.Context(), new(workspace), nil, packQuery(t, name, kind),
					sender{netip.AddrPortFrom(netip.MustParseAddr(from), 4000), tcp}, true, time.Now())
				m := new(dns.Msg)
				if err := m.Unpack(reply); err != nil {
					t.Fatal(err)
				}
				want := dns.RcodeSuccess
				if !answered {
					want, refused = dns.RcodeRefused, refused+1
				}
				if m.Rcode != want || answered != (len(m.Answer) > 0) {
					t.Errorf("%s asks for %s: %s with %d records, want %s", from, name, dns.RcodeToString[m.Rcode],
						len(m.Answer), dns.RcodeToString[want])
				}
			}
		}
	}
	counted := prometheus.NewRegistry()
	counted.MustRegister(h.metrics.refusedClients)
	if all, err := counted.Gather(); err != nil || all[0].GetMetric()[0].GetCounter().GetValue() != refused {
		t.Errorf("%v, %v: %v are refused", all, err, refused)
	}
}

// Until the Nodes are known, pods and this machine are answered, even without an API server. All others get no answer,
// because they may be machines of the cluster or strangers.
// Proves S30.
func TestUnknownClientsAreNotAnsweredBeforeTheNodesAreRead(t *testing.T) {
	own := ""
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range all {
		if n, ok := at.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			own = n.IP.String()
		}
	}
	if own == "" {
		own = "127.0.0.1"
	}
	who, err := newClients(settings())
	if err != nil {
		t.Fatal(err)
	}
	// The API server refuses all requests.
	api := fake.NewClientset()
	api.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("nobody answers")
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- who.watchNodes(ctx, api, slog.New(slog.DiscardHandler)) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	h := newHandler(t, startUpstream(t, answerRecords(t, "example.org. 60 IN A 192.0.2.7")))
	h.clients = who
	ask := func(from string) []byte {
		reply, _ := h.respond(t.Context(), new(workspace), nil,
			packQuery(t, "web-7.shop.svc.cluster.local.", dns.TypeA),
			sender{netip.AddrPortFrom(netip.MustParseAddr(from), 4000), false}, true, time.Now())
		return reply
	}
	for from, isClient := range map[string]bool{"10.244.3.9": true, "fd00:10::9": true, "10.96.0.9": true,
		"127.0.0.1": true,
		"::1":       true, own: true,
		"192.168.7.11": false, "198.51.100.9": false, "2001:db8::12": false} {
		if reply := ask(from); (len(reply) > 0) != isClient {
			t.Errorf("%s gets %d bytes while the machines are not known", from, len(reply))
		}
	}
	who.setMachines([]any{machineAt("n1", "192.168.7.11")})
	for from, code := range map[string]int{"192.168.7.11": dns.RcodeSuccess, own: dns.RcodeSuccess,
		"198.51.100.9": dns.RcodeRefused} {
		m := new(dns.Msg)
		if err := m.Unpack(ask(from)); err != nil || m.Rcode != code {
			t.Errorf("%s gets %s (%v) once they are", from, dns.RcodeToString[m.Rcode], err)
		}
	}
}

// Without configured pod networks, all clients are answered.
func TestAllClientsAreAnsweredWithoutConfiguredNetworks(t *testing.T) {
	who, err := newClients(config.DefaultDNS())
	if err != nil {
		t.Fatal(err)
	}
	if who.verdict(netip.MustParseAddr("198.51.100.9")) != clientAllowed {
		t.Error("refused")
	}
}

func TestMachinesAreAnsweredWhileTheyHaveANode(t *testing.T) {
	who, err := newClients(settings())
	if err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientset(machineAt("n1", "192.168.7.11"))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- who.watchNodes(ctx, api, slog.New(slog.DiscardHandler)) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	until := func(what, address string, want bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); who.machines.Load() == nil ||
			(who.verdict(netip.MustParseAddr(address)) == clientAllowed) != want; {
			if time.Now().After(end) {
				t.Fatalf("%s: %s is answered: %t", what, address, !want)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	until("a machine that was there", "192.168.7.11", true)
	until("none", "192.168.7.12", false)
	if _, err := api.CoreV1().Nodes().Create(ctx, machineAt("n2", "192.168.7.12"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until("a machine that comes", "192.168.7.12", true)
	if _, err := api.CoreV1().Nodes().UpdateStatus(ctx, machineAt("n2", "192.168.7.13"),
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until("its new address", "192.168.7.13", true)
	until("its former address", "192.168.7.12", false)
	if err := api.CoreV1().Nodes().Delete(ctx, "n1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until("a machine that has gone", "192.168.7.11", false)
}
