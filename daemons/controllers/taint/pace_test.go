package taint

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/config"
)

func TestTheMoreIsLostTheSlowerPodsAreMoved(t *testing.T) { // S04
	const usual, slow = 10 * time.Second, 100 * time.Second
	for _, c := range []struct {
		name          string
		zone, cluster Health
		every         time.Duration
		moves         bool
	}{
		{"one node", Health{10, 1}, Health{10, 1}, usual, true},
		{"two of three, which says little", Health{3, 2}, Health{3, 2}, usual, true},
		{"most of a zone, in a small cluster", Health{10, 6}, Health{20, 6}, 0, false},
		{"most of a zone, in a large cluster", Health{40, 30}, Health{100, 30}, slow, true},
		{"half of a zone", Health{10, 5}, Health{20, 5}, usual, true},
		{"a whole zone, while others are well", Health{10, 10}, Health{20, 10}, usual, true},
		{"everything", Health{10, 10}, Health{10, 10}, 0, false},
		{"the only node", Health{1, 1}, Health{1, 1}, 0, false},
	} {
		every, moves := Pace(c.zone, c.cluster, config.DefaultControllerManager())
		if every != c.every || moves != c.moves {
			t.Errorf("%s: %v %v, want %v %v", c.name, every, moves, c.every, c.moves)
		}
	}
}

func TestNodesOfAZoneAreLeftOneAfterTheOther(t *testing.T) { // S04
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	node := func(name, zone string, lost bool) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
		if lost {
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
		}
		if err := indexer.Add(n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	a1, a2, b1 := node("a1", "a", true), node("a2", "a", true), node("b1", "b", true)
	node("c1", "c", false)
	g := newGate(corelisters.NewNodeLister(indexer), config.DefaultControllerManager())
	start := time.Unix(1000, 0)
	for _, step := range []struct {
		node  *corev1.Node
		after time.Duration
		want  time.Duration
	}{
		{a1, 0, 0}, {a2, 0, 10 * time.Second}, {b1, 0, 0}, {a1, time.Second, 0}, {a2, 4 * time.Second, 6 * time.Second}, {a2, 10 * time.Second, 0},
	} {
		got, err := g.wait(step.node, start.Add(step.after))
		if err != nil || got != step.want {
			t.Errorf("%s after %s waits %s (%v), want %s", step.node.Name, step.after, got, err, step.want)
		}
	}
}

func TestNodesThatWereAllLostGetTheirGraceBeforeAnyIsLeft(t *testing.T) { // S04
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	node := func(name string, lost bool) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: name}}}
		if lost {
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
		}
		if err := indexer.Add(n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	cfg := config.DefaultControllerManager()
	g := newGate(corelisters.NewNodeLister(indexer), cfg)
	start := time.Unix(1000, 0)
	a := node("a", true)
	node("b", true)
	if wait, err := g.wait(a, start); err != nil || wait != cfg.NodeMonitorPeriod {
		t.Fatalf("while all are lost: %s, %v", wait, err)
	}
	node("b", false)
	back := start.Add(time.Minute)
	if err := g.notice(back); err != nil {
		t.Fatal(err)
	}
	if wait, err := g.wait(a, back); err != nil || wait != cfg.NodeMonitorGracePeriod {
		t.Errorf("when the first is back: %s, %v", wait, err)
	}
	if wait, err := g.wait(a, back.Add(cfg.NodeMonitorGracePeriod)); err != nil || wait != 0 {
		t.Errorf("after the grace: %s, %v", wait, err)
	}
}
