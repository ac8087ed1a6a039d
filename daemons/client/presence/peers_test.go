package presence

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
)

func server(client kubernetes.Interface, node, addr string) *Publisher {
	return &Publisher{Client: client, Log: slog.New(slog.DiscardHandler), Namespace: "kube-system", Service: "kube-dns", Manager: "dns.clusterctl",
		Node: node, Addr: netip.MustParseAddr(addr)}
}

// S31: the name of a machine that died is not asked any more.
func TestTheEndpointOfADeadServerIsTakenAwayByItsPeers(t *testing.T) {
	ctx, client, now := t.Context(), fake.NewClientset(), time.Unix(1000, 0)
	a, b, c := server(client, "a", "10.0.0.1"), server(client, "b", "10.0.0.2"), server(client, "c", "10.0.0.3")
	for _, p := range []*Publisher{a, b, c} {
		if err := p.publish(ctx); err != nil {
			t.Fatal(err)
		}
		if err := p.renew(ctx, now); err != nil {
			t.Fatal(err)
		}
	}
	peers := map[string]standing{}
	for range staleLooks + 1 { // c is dead: its lease stands still
		now = now.Add(renewEvery)
		for _, p := range []*Publisher{a, b} {
			if err := p.renew(ctx, now); err != nil {
				t.Fatal(err)
			}
		}
		if there(ctx, t, client, "kube-dns-c") != true {
			t.Fatal("taken away too early")
		}
		if err := a.sweep(ctx, peers); err != nil {
			t.Fatal(err)
		}
	}
	if there(ctx, t, client, "kube-dns-c") {
		t.Error("the dead server's endpoint is still there")
	}
	if !there(ctx, t, client, "kube-dns-b") || !there(ctx, t, client, "kube-dns-a") {
		t.Error("a living server's endpoint is gone")
	}
}

func TestAServerPublishesItselfAndLeavesNothing(t *testing.T) { // S31
	client := fake.NewClientset()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { server(client, "a", "10.0.0.1").Run(ctx); close(done) }()
	for !there(ctx, t, client, "kube-dns-a") {
		if ctx.Err() != nil {
			t.Fatal("never published")
		}
	}
	stop()
	<-done
	if there(t.Context(), t, client, "kube-dns-a") {
		t.Error("a server that stopped left its endpoint")
	}
}

func there(ctx context.Context, t *testing.T, client kubernetes.Interface, name string) bool {
	t.Helper()
	_, err := client.DiscoveryV1().EndpointSlices("kube-system").Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

func TestAServerThatIsNotToBeAskedSaysSo(t *testing.T) {
	client, why := fake.NewClientset(), error(nil)
	p := server(client, "a", "10.0.0.1")
	p.Ready = func() error { return why }
	for _, want := range []bool{true, false, true} {
		why = nil
		if !want {
			why = errors.New("nothing is known")
		}
		if err := p.publish(t.Context()); err != nil {
			t.Fatal(err)
		}
		slice, err := client.DiscoveryV1().EndpointSlices("kube-system").Get(t.Context(), "kube-dns-a", metav1.GetOptions{})
		if err != nil || *slice.Endpoints[0].Conditions.Ready != want || !*slice.Endpoints[0].Conditions.Serving {
			t.Errorf("want ready %v: %+v, %v", want, slice, err)
		}
	}
}

// Many servers do not all look at all the others all the time; when those that do are gone, others take over.
func TestTheFirstFewServersLookAfterTheirPeers(t *testing.T) {
	ctx, client, now := t.Context(), fake.NewClientset(), time.Unix(1000, 0)
	var all []*Publisher
	for _, node := range []string{"a", "b", "c", "d", "e"} {
		all = append(all, server(client, node, "10.0.0.1"))
	}
	renew := func(list []*Publisher) {
		t.Helper()
		now = now.Add(renewEvery)
		for _, p := range list {
			if err := p.renew(ctx, now); err != nil {
				t.Fatal(err)
			}
		}
	}
	others := func(p *Publisher, peers map[string]standing) int {
		t.Helper()
		if err := p.sweep(ctx, peers); err != nil {
			t.Fatal(err)
		}
		return p.others(peers)
	}
	renew(all)
	for i, want := range []int{0, 1, 2, 3, 4} {
		if got := others(all[i], map[string]standing{}); got != want {
			t.Errorf("before %s are %d others", all[i].Node, got)
		}
	}
	peers := map[string]standing{}
	others(all[4], peers)
	renew(all[3:])
	if got := others(all[4], peers); got != 1 {
		t.Errorf("when three are dead, %d others look", got)
	}
}
