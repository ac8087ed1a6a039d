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

func newPublisher(client kubernetes.Interface, node string, addrs ...string) *Publisher {
	var list []netip.Addr
	for _, a := range addrs {
		list = append(list, netip.MustParseAddr(a))
	}
	return &Publisher{
		Client:    client,
		Log:       slog.New(slog.DiscardHandler),
		Namespace: "kube-system",
		Service:   "kube-dns",
		Manager:   "dns.clusterctl",
		Node:      node,
		Addrs:     list,
	}
}

// Proves S31.
func TestPublishersRemoveTheirEndpointsAtTheEnd(t *testing.T) {
	client := fake.NewClientset()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { newPublisher(client, "a", "10.0.0.1").Run(ctx); close(done) }()
	for !sliceExists(ctx, t, client, "kube-dns-a") {
		if ctx.Err() != nil {
			t.Fatal("never published")
		}
	}
	stop()
	<-done
	if sliceExists(t.Context(), t, client, "kube-dns-a") {
		t.Error("a server that stopped left its endpoint")
	}
}

func sliceExists(ctx context.Context, t *testing.T, client kubernetes.Interface, name string) bool {
	t.Helper()
	_, err := client.DiscoveryV1().EndpointSlices("kube-system").Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

// publishedAddresses returns the endpoints of the service with the families of their slices.
func publishedAddresses(t *testing.T, client kubernetes.Interface) (list []string) {
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

func TestServersHaveAnEndpointOfEachFamily(t *testing.T) {
	ctx, client := t.Context(), fake.NewClientset()
	for _, c := range []struct {
		what    string
		current []string
		want    string
	}{
		{"of both families", []string{"10.0.0.1", "fd00::1"}, "IPv4 10.0.0.1, IPv6 fd00::1"},
		{"that has lost an address since it ran last", []string{"10.0.0.1"}, "IPv4 10.0.0.1"},
		{"with another one again", []string{"10.0.0.1", "fd00::2"}, "IPv4 10.0.0.1, IPv6 fd00::2"},
		{"whose first family has changed", []string{"fd00::2", "10.0.0.1"}, "IPv4 10.0.0.1, IPv6 fd00::2"},
		{"of the second family alone", []string{"fd00::2"}, "IPv6 fd00::2"},
	} {
		p := newPublisher(client, "a", c.current...)
		for range 2 { // the family of a slice is immutable, so the slice is deleted and created again
			if err := p.publish(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Join(publishedAddresses(t, client), ", "); got != c.want {
			t.Errorf("the endpoints of a server %s are %s", c.what, got)
		}
	}
	// A node's name may be any name that is valid for a slice.
	others := []string{"ipv4-a", "ipv6-a", "a-ipv6", "a.ipv6", "a.ipv4"}
	for i, name := range others {
		if err := newPublisher(client, name, fmt.Sprintf("10.0.1.%d", i),
			fmt.Sprintf("fd00:1::%d", i+1)).publish(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := len(publishedAddresses(t, client)), 2*len(others)+1; got != want {
		t.Errorf("%d endpoints of servers with names that are alike, want %d", got, want)
	}
}

func TestEndpointsOfAllFamiliesAreRemoved(t *testing.T) {
	client := fake.NewClientset()
	peer := newPublisher(client, "b", "10.0.0.2", "fd00::2")
	peer.KeepLast = true
	for _, want := range []bool{true, false} {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { peer.Run(ctx); close(done) }()
		for deadline := time.Now().Add(20 * time.Second); len(publishedAddresses(t, client)) < 2; {
			if time.Now().After(deadline) {
				t.Fatal("never published")
			}
		}
		stop()
		<-done
		if left := publishedAddresses(t, client); len(left) > 0 != want || peer.HasLeft() == want {
			t.Errorf("the last server is expected back: %t; of it are left %s", want, left)
		}
		peer.KeepLast = false
	}
}

// TestPublishersRenewTheirLease checks the lease by which the presence controller sees that the server is alive.
func TestPublishersRenewTheirLease(t *testing.T) {
	client, now := fake.NewClientset(), time.Unix(1000, 0)
	p := newPublisher(client, "a", "10.0.0.1")
	for _, here := range []bool{false, true} { // the duration depends on IsMachineLocal
		p.IsMachineLocal, now = here, now.Add(renewInterval)
		if err := p.renew(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		lease, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), "kube-dns-a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := int32(renewalsPerLease * p.leaseInterval() / time.Second)
		if *lease.Spec.HolderIdentity != "a" || !lease.Spec.RenewTime.Time.Equal(now) ||
			*lease.Spec.LeaseDurationSeconds != want || lease.Labels["dns.clusterctl/service"] != "kube-dns" {
			t.Errorf("the lease is %+v, want one that lasts %d s", lease, want)
		}
	}
	if list, err := client.CoordinationV1().Leases("kube-system").List(t.Context(), metav1.ListOptions{}); err != nil ||
		len(list.Items) != 1 {
		t.Errorf("there are %d leases (%v)", len(list.Items), err)
	}
}

func TestUnreadyServersPublishUnreadyEndpoints(t *testing.T) {
	client, reason := fake.NewClientset(), error(nil)
	p := newPublisher(client, "a", "10.0.0.1")
	p.Ready = func() error { return reason }
	for _, want := range []bool{true, false, true} {
		reason = nil
		if !want {
			reason = errors.New("nothing is known")
		}
		if err := p.publish(t.Context()); err != nil {
			t.Fatal(err)
		}
		slice, err := client.DiscoveryV1().
			EndpointSlices("kube-system").
			Get(t.Context(), "kube-dns-a", metav1.GetOptions{})
		if err != nil || *slice.Endpoints[0].Conditions.Ready != want || !*slice.Endpoints[0].Conditions.Serving {
			t.Errorf("want ready %v: %+v, %v", want, slice, err)
		}
	}
}
