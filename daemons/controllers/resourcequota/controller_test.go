package resourcequota

import (
	"context"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// A pod that takes longer than its grace period stops counting at its deletion, not at the next regular recount.
func TestPodsStopCountingAtTheirDeletion(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	grace := int64(1)
	client := fake.NewClientset(
		&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "small"},
			Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("2")}}},
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Finalizers: []string{"kubelet/ends-it"},
				DeletionTimestamp: &metav1.Time{
					Time: clock.Now().Add(time.Second),
				}, DeletionGracePeriodSeconds: &grace},
		},
	)
	factory := informers.New(client)
	c := New(loop.Context{Client: client, Informers: factory, Clock: clock, Log: slog.New(slog.DiscardHandler)})
	factory.StartWithContext(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()
	used := func(want string) bool {
		q, err := client.CoreV1().ResourceQuotas("shop").Get(ctx, "small", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := q.Status.Used["pods"]
		return got.String() == want && len(q.Status.Used) > 0
	}
	wait := func(what string, done func() bool) {
		t.Helper()
		deadline := time.After(time.Minute)
		look := time.NewTicker(5 * time.Millisecond)
		defer look.Stop()
		for !done() {
			select {
			case <-deadline:
				t.Fatalf("timed out waiting for %s", what)
			case <-look.C:
			}
		}
	}
	wait("the pod to be counted", func() bool { return used("1") })
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other"}}
	if _, err := client.CoreV1().Pods("shop").Create(ctx, other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	soon := clock.Now().Add(2 * collectDelay)
	wait("both pods to be counted, after which no count is due", func() bool {
		if clock.Now().Before(soon) {
			clock.Step(collectDelay / 10)
		}
		return used("2")
	})
	clock.Step(10 * time.Second)
	if err := client.CoreV1().Pods("shop").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	latest := clock.Now().Add(time.Minute)
	wait("the pod not to be counted", func() bool {
		if clock.Now().Before(latest) {
			clock.Step(collectDelay / 10)
		}
		return used("1")
	})
}
