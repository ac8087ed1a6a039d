package client

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/kube/kubernetes/fake"
)

// Proves S14.
func TestTheLeaseIsReleasedAfterTheHolderStopped(t *testing.T) {
	client, log := fake.NewClientset(), slog.New(slog.DiscardHandler)
	var active atomic.Int32
	work := func(started chan<- struct{}, finish <-chan struct{}) func(context.Context) error {
		return func(ctx context.Context) error {
			if active.Add(1) > 1 {
				t.Error("two are active")
			}
			close(started)
			<-ctx.Done()
			<-finish
			active.Add(-1)
			return nil
		}
	}
	first, stopFirst := context.WithCancel(t.Context())
	firstStarted, firstFinish, firstDone := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() { firstDone <- Lead(first, client, "x", log, work(firstStarted, firstFinish)) }()
	<-firstStarted

	second, stopSecond := context.WithCancel(t.Context())
	secondStarted, secondFinish, secondDone := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() { secondDone <- Lead(second, client, "x", log, work(secondStarted, secondFinish)) }()

	stopFirst()
	lease, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), "x", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		t.Fatalf("the lease was let go before the work was done: %v %v", lease, err)
	}
	close(firstFinish)
	if err := <-firstDone; err != nil {
		t.Fatal(err)
	}
	select {
	case <-secondStarted:
	case <-time.After(20 * time.Second):
		t.Fatal("no other client took over")
	}
	close(secondFinish)
	stopSecond()
	if err := <-secondDone; err != nil {
		t.Fatal(err)
	}
}

// Proves S14.
func TestStandbysStopAtOnce(t *testing.T) {
	client, log := fake.NewClientset(), slog.New(slog.DiscardHandler)
	started := make(chan struct{})
	leader, stopLeader := context.WithCancel(t.Context())
	leaderDone := make(chan error, 1)
	go func() {
		leaderDone <- Lead(leader, client, "x", log,
			func(ctx context.Context) error { close(started); <-ctx.Done(); return nil })
	}()
	<-started
	standby, stop := context.WithCancel(t.Context())
	stop()
	if err := Lead(standby, client, "x", log, func(context.Context) error { return errors.New("led") }); err != nil {
		t.Fatal(err)
	}
	stopLeader()
	if err := <-leaderDone; err != nil {
		t.Fatal(err)
	}
}

func TestLeadReturnsTheResultOfTheActiveFunction(t *testing.T) {
	failure := errors.New("broken")
	err := Lead(t.Context(), fake.NewClientset(), "x", slog.New(slog.DiscardHandler),
		func(context.Context) error { return failure })
	if !errors.Is(err, failure) {
		t.Fatalf("got %v", err)
	}
}
