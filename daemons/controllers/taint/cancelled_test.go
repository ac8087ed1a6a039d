package taint

import (
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// A pod that waited for its eviction and may stay after all gets one event.
func TestCancelledEvictionsAreReported(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	maintenance := corev1.Taint{
		Key:       "maintenance",
		Effect:    corev1.TaintEffectNoExecute,
		TimeAdded: ptr.To(metav1.NewTime(start)),
	}
	tolerating := podTolerating
	node := func(taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Taints: taints}}
	}
	another := tolerating(nil)
	another.UID = types.UID("another")
	const saved = "Normal TaintManagerEviction Cancelling deletion of Pod shop/p"
	for _, c := range []struct {
		name          string
		before, after *corev1.Pod
		left          []corev1.Taint // the taints that the node has then
		want          string
	}{
		{"the taint is gone", tolerating(ptr.To[int64](300)), tolerating(ptr.To[int64](300)), nil, saved},
		{"it tolerates the taint for good", tolerating(ptr.To[int64](300)), tolerating(nil),
			[]corev1.Taint{maintenance}, saved},
		{"it never had to go", tolerating(nil), tolerating(nil), nil, ""},
		{"it still has to go", tolerating(ptr.To[int64](300)), tolerating(ptr.To[int64](300)),
			[]corev1.Taint{maintenance}, ""},
		{"it is another pod of the name", tolerating(ptr.To[int64](300)), another, nil, ""},
		{"it is gone", tolerating(ptr.To[int64](300)), nil, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			events, client := record.NewFakeRecorder(10), fake.NewClientset()
			factory := informers.New(client)
			made, ok := New(loop.Context{Client: client, Informers: factory, Log: slog.New(slog.DiscardHandler),
				Events: events,
				Clock:  clocktesting.NewFakeClock(start), Config: config.DefaultControllerManager()}).(*controller)
			if !ok {
				t.Fatal("it is no controller of taints")
			}
			nodes := informers.Nodes(factory).Informer().GetIndexer()
			pods := informers.Pods(factory).Informer().GetIndexer()
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(nodes.Add(node(maintenance)))
			must(pods.Add(c.before))
			made.podChanged(nil, c.before)
			must(made.sync(t.Context(), "shop/p"))
			for made.Queue().Len() > 0 {
				key, _ := made.Queue().Get()
				made.Queue().Done(key)
			}
			must(nodes.Update(node(c.left...)))
			if c.after == nil {
				must(pods.Delete(c.before))
				made.podChanged(c.before, nil)
			} else {
				must(pods.Update(c.after))
				made.podChanged(c.before, c.after)
			}
			made.nodeChanged(node(maintenance), node(c.left...))
			syncQueued(t, made)
			must(made.sync(t.Context(), "shop/p"))
			var message string
			for len(events.Events) > 0 {
				message += <-events.Events
			}
			if message != c.want {
				t.Errorf("the events are %q, want %q", message, c.want)
			}
			if _, waits := made.waitingPods.pods["shop/p"]; waits != (c.want == "" && len(c.left) > 0 &&
				c.after != nil) {
				t.Errorf("the pod is registered as waiting: %v", waits)
			}
		})
	}
}

// syncQueued syncs the pods that are queued, and no others.
func syncQueued(t *testing.T, c *controller) {
	for c.Queue().Len() > 0 {
		key, _ := c.Queue().Get()
		if err := c.sync(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		c.Queue().Done(key)
	}
}

// podTolerating returns a pod that tolerates the taint for a time, or for good.
func podTolerating(seconds *int64) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", UID: "p"},
		Spec: corev1.PodSpec{NodeName: "n",
			Tolerations: []corev1.Toleration{
				{Key: "maintenance", Operator: corev1.TolerationOpExists, TolerationSeconds: seconds},
			}},
	}
}
