package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/scheduler/profile"
	"clusterctl/kube/kubernetes/fake"
)

// startScheduler runs a scheduler with a fake API that carries out bindings.
func startScheduler(t *testing.T, objects ...runtime.Object) *fake.Clientset {
	t.Helper()
	return startWith(t, profile.DefaultSettings(), objects...)
}

func startWith(t *testing.T, settings profile.Settings, objects ...runtime.Object) *fake.Clientset {
	t.Helper()
	api := fake.NewClientset(objects...)
	api.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, ok := action.(clienttesting.CreateAction)
		if !ok || action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		b := create.GetObject().(*corev1.Binding)
		gvr := corev1.SchemeGroupVersion.WithResource("pods")
		obj, err := api.Tracker().Get(gvr, action.GetNamespace(), b.Name)
		if err != nil {
			return true, nil, err
		}
		p := obj.(*corev1.Pod).DeepCopy()
		p.Spec.NodeName = b.Target.Name
		return true, b, api.Tracker().Update(gvr, p, action.GetNamespace())
	})
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	s := newScheduler(api, slog.New(slog.DiscardHandler), m, settings)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return api
}

// react adds a reaction to the fake API with locking, because the scheduler already uses it. PrependReactor alone does
// not lock.
func react(api *fake.Clientset, verb, resource string, reaction clienttesting.ReactionFunc) {
	api.Lock()
	defer api.Unlock()
	api.PrependReactor(verb, resource, reaction)
}

// waitFor waits until a condition returns nil.
func waitFor(t *testing.T, condition func() error) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for {
		err := condition()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timed out: %v", err)
		}
	}
}

func getPod(t *testing.T, api *fake.Clientset, name string) *corev1.Pod {
	t.Helper()
	p, err := api.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func isPlacedOn(t *testing.T, api *fake.Clientset, pod, node string) func() error {
	return func() error {
		if got := getPod(t, api, pod).Spec.NodeName; got != node {
			return fmt.Errorf("pod %s is on %q, not on %q", pod, got, node)
		}
		return nil
	}
}

func hasEvent(api *fake.Clientset, reason, message string) func() error {
	return func() error {
		list, err := api.CoreV1().Events("default").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == reason && strings.Contains(e.Message, message) {
				return nil
			}
		}
		return fmt.Errorf("no event %s %q among %v", reason, message, list.Items)
	}
}

// Proves S16.
func TestPodsAreScheduledToNodesWithFreeResources(t *testing.T) {
	api := startScheduler(t, node("n1"), pod("running", withNodeName("n1"), withRequest("cpu", "3")),
		pod("fits", withRequest("cpu", "1")), pod("waits", withRequest("cpu", "2")))
	waitFor(t, isPlacedOn(t, api, "fits", "n1"))
	waitFor(t, hasEvent(api, "Scheduled", "Successfully assigned default/fits to n1"))
	const reason = "0/1 nodes are available: 1 Insufficient cpu."
	waitFor(t, hasEvent(api, "FailedScheduling", reason))
	waitFor(t, func() error {
		for _, c := range getPod(t, api, "waits").Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == "Unschedulable" &&
				strings.HasPrefix(c.Message, reason) {
				return nil
			}
		}
		return fmt.Errorf("the pod does not say why")
	})
	if _, err := api.CoreV1().Nodes().Create(context.Background(), node("n2"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, isPlacedOn(t, api, "waits", "n2"))
}

// Proves S17.
func TestPodsOfOtherSchedulersAndGatedPodsAreIgnored(t *testing.T) {
	api := startScheduler(t, node("n1"),
		pod("theirs", func(p *corev1.Pod) { p.Spec.SchedulerName = "another" }),
		pod("gated", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} }),
		pod("mine"))
	waitFor(t, isPlacedOn(t, api, "mine", "n1"))
	for _, name := range []string{"theirs", "gated"} {
		if got := getPod(t, api, name).Spec.NodeName; got != "" {
			t.Errorf("%s went to %s", name, got)
		}
	}
	open := getPod(t, api, "gated")
	open.Spec.SchedulingGates, open.Generation = nil, 2
	if _, err := api.CoreV1().Pods("default").Update(context.Background(), open, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, isPlacedOn(t, api, "gated", "n1"))
}

// Proves S17.
func TestHigherPriorityPodsPreemptLowerOnes(t *testing.T) {
	api := startScheduler(t, node("n1"), pod("lesser", withNodeName("n1"), withRequest("cpu", "4")),
		pod("important", priority(10), withRequest("cpu", "2")))
	waitFor(t, isPlacedOn(t, api, "important", "n1"))
	waitFor(t, hasEvent(api, "Preempted", "on node n1"))
	if _, err := api.CoreV1().Pods("default").Get(context.Background(), "lesser", metav1.GetOptions{}); err == nil {
		t.Error("the lesser pod is still there")
	}
}

func TestFailedBindingsAreRetried(t *testing.T) {
	api := startScheduler(t)
	failures := 0
	react(api, "create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() == "binding" && failures == 0 {
			failures++
			return true, nil, fmt.Errorf("the API is away")
		}
		return false, nil, nil
	})
	for _, create := range []func() error{
		func() error {
			_, err := api.CoreV1().Nodes().Create(context.Background(), node("n1"), metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := api.CoreV1().Pods("default").Create(context.Background(), pod("p"), metav1.CreateOptions{})
			return err
		},
	} {
		if err := create(); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, isPlacedOn(t, api, "p", "n1"))
	if failures != 1 {
		t.Errorf("%d bindings failed", failures)
	}
}
