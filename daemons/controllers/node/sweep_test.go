package node

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"clusterctl/daemons/config"
	"clusterctl/daemons/controllers/loop"
)

func TestSweepsEnqueueOnlyUnhealthyNodes(t *testing.T) {
	start := time.Unix(1800000000, 0)
	clock := clocktesting.NewFakeClock(start)
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	leases := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	c := loop.Context{
		Clock:  clock,
		Config: config.ControllerManager{NodeMonitorGracePeriod: 50 * time.Second, NodeStartupGracePeriod: time.Minute},
	}
	n := &controller{
		Context:    c,
		nodes:      corelisters.NewNodeLister(nodes),
		leases:     leases,
		heartbeats: map[string]heartbeat{},
		counts:     newCounts(),
	}
	n.Loop = loop.Loop{Name: "node", Context: c}
	renew := func(name string) {
		now := metav1.NewMicroTime(clock.Now())
		_ = leases.Add(
			&coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name},
				Spec:       coordinationv1.LeaseSpec{RenewTime: &now},
			},
		)
	}
	for name, status := range map[string]corev1.ConditionStatus{"well": corev1.ConditionTrue,
		"falls-silent": corev1.ConditionTrue, "not-ready": corev1.ConditionFalse, "new": ""} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if status != "" {
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
		}
		_ = nodes.Add(node)
		renew(name)
	}
	swept := func() (names []string) {
		n.sweep()
		for n.Queue().Len() > 0 {
			name, _ := n.Queue().Get()
			n.Queue().Done(name)
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	if got := swept(); !slices.Equal(got, []string{"new", "not-ready"}) {
		t.Errorf("at first %v", got)
	}
	clock.Step(40 * time.Second)
	for _, name := range []string{"well", "not-ready", "new"} {
		renew(name)
	}
	if got := swept(); !slices.Equal(got, []string{"new", "not-ready"}) {
		t.Errorf("within the grace %v", got)
	}
	clock.Step(11 * time.Second)
	if got := swept(); !slices.Equal(got, []string{"falls-silent", "new", "not-ready"}) {
		t.Errorf("after it %v", got)
	}
}
