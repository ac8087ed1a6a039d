package presence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/kube/kubernetes"
	"clusterctl/kube/kubernetes/fake"
)

func server(client kubernetes.Interface, node string, addrs ...string) *Publisher {
	var list []netip.Addr
	for _, a := range addrs {
		list = append(list, netip.MustParseAddr(a))
	}
	return &Publisher{Client: client, Log: slog.New(slog.DiscardHandler), Namespace: "kube-system", Service: "kube-dns", Manager: "dns.clusterctl",
		Node: node, Addrs: list}
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

// addresses are the endpoints of the service, with the families of their slices.
func addresses(t *testing.T, client kubernetes.Interface) (list []string) {
	t.Helper()
	ofService := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kube-dns"}
	found, err := client.DiscoveryV1().EndpointSlices("kube-system").List(t.Context(), ofService)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range found.Items {
		for _, e := range s.Endpoints {
			list = append(list, string(s.AddressType)+" "+e.Addresses[0])
		}
	}
	slices.Sort(list)
	return list
}

func TestAServerHasAnEndpointOfEachFamily(t *testing.T) {
	ctx, client := t.Context(), fake.NewClientset()
	for _, c := range []struct {
		what string
		has  []string
		want string
	}{
		{"of both families", []string{"10.0.0.1", "fd00::1"}, "IPv4 10.0.0.1, IPv6 fd00::1"},
		{"that has lost an address since it ran last", []string{"10.0.0.1"}, "IPv4 10.0.0.1"},
		{"with another one again", []string{"10.0.0.1", "fd00::2"}, "IPv4 10.0.0.1, IPv6 fd00::2"},
		{"whose first family has changed", []string{"fd00::2", "10.0.0.1"}, "IPv4 10.0.0.1, IPv6 fd00::2"},
		{"of the second family alone", []string{"fd00::2"}, "IPv6 fd00::2"},
	} {
		p := server(client, "a", c.has...)
		for range 2 { // a slice's family cannot be changed: it is made anew
			if err := p.publish(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Join(addresses(t, client), ", "); got != c.want {
			t.Errorf("the endpoints of a server %s are %s", c.what, got)
		}
	}
	// A node's name may be whatever a slice's may be, too.
	others := []string{"ipv4-a", "ipv6-a", "a-ipv6", "a.ipv6", "a.ipv4"}
	for i, name := range others {
		if err := server(client, name, fmt.Sprintf("10.0.1.%d", i), fmt.Sprintf("fd00:1::%d", i+1)).publish(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := len(addresses(t, client)), 2*len(others)+1; got != want {
		t.Errorf("%d endpoints of servers with names that are alike, want %d", got, want)
	}
}

func TestEndpointsOfAllFamiliesGoWithTheirServer(t *testing.T) {
	client := fake.NewClientset()
	dead, peer := server(client, "a", "10.0.0.1", "fd00::1"), server(client, "b", "10.0.0.2", "fd00::2")
	if err := errors.Join(dead.publish(t.Context()), dead.renew(t.Context(), time.Unix(1000, 0))); err != nil {
		t.Fatal(err)
	}
	for peers := (map[string]standing{}); there(t.Context(), t, client, "kube-dns-a"); {
		if err := peer.sweep(t.Context(), peers); err != nil {
			t.Fatal(err)
		}
	}
	if left := addresses(t, client); len(left) > 0 {
		t.Errorf("of a server that died are left %s", left)
	}
	peer.KeepLast = true
	for _, want := range []bool{true, false} {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { peer.Run(ctx); close(done) }()
		for deadline := time.Now().Add(20 * time.Second); len(addresses(t, client)) < 2; {
			if time.Now().After(deadline) {
				t.Fatal("never published")
			}
		}
		stop()
		<-done
		if left := addresses(t, client); len(left) > 0 != want || peer.Left() == want {
			t.Errorf("the last server is expected back: %t; of it are left %s", want, left)
		}
		peer.KeepLast = false
	}
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
