package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/config"
)

// Proves S04.
func TestEvictionRateFallsWithTheShareOfLostNodes(t *testing.T) {
	const usual, slow = 0.1, 0.01
	for _, c := range []struct {
		name string
		zone Health
		rate float64
	}{
		{"one node", Health{10, 1}, usual},
		{"two of three, which says little", Health{3, 2}, usual},
		{"most of a small zone", Health{10, 6}, 0},
		{"most of a zone that is just not large", Health{50, 30}, 0},
		{"most of a large zone", Health{60, 40}, slow},
		{"half of a zone", Health{10, 5}, usual},
		{"a whole zone, while others are well", Health{10, 10}, usual},
	} {
		if rate := Rate(c.zone, config.DefaultControllerManager()); rate != c.rate {
			t.Errorf("%s: %v, want %v", c.name, rate, c.rate)
		}
	}
}

func neverLate(*corev1.Node) bool { return false }

// lostNode returns a node of a zone that is ready, or silent if lost.
func lostNode(name, zone string, lost bool) *corev1.Node {
	status := corev1.ConditionTrue
	if lost {
		status = corev1.ConditionUnknown
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}},
	}
}

// Proves S04.
func TestNodesOfAZoneAreTaintedOneByOne(t *testing.T) {
	a1, a2, b1 := lostNode("a1", "a", true), lostNode("a2", "a", true), lostNode("b1", "b", true)
	z := zones{cfg: config.DefaultControllerManager()}
	start := time.Unix(1000, 0)
	if got := z.untilTaint(a1, start); got != z.cfg.NodeMonitorPeriod {
		t.Errorf("before the nodes are counted, one waits %s", got)
	}
	z.count([]*corev1.Node{a1, a2, b1, lostNode("c1", "c", false)}, neverLate, start)
	for _, step := range []struct {
		node  *corev1.Node
		after time.Duration
		want  time.Duration
	}{
		{a1, 0, 0}, {a2, 0, 10 * time.Second}, {b1, 0, 0}, {a2, 4 * time.Second, 6 * time.Second},
		{a2, 10 * time.Second, 0},
	} {
		if got := z.untilTaint(step.node, start.Add(step.after)); got != step.want {
			t.Errorf("%s after %s waits %s, want %s", step.node.Name, step.after, got, step.want)
		}
	}
}

// Proves S04.
func TestNodesGetAGracePeriodAfterAnOutage(t *testing.T) {
	z := zones{cfg: config.DefaultControllerManager()}
	start := time.Unix(1000, 0)
	a := lostNode("a", "a", true)
	if !z.count([]*corev1.Node{a, lostNode("b", "b", true)}, neverLate, start) || !z.areAllLost() {
		t.Error("it is not seen that all are lost")
	}
	if wait := z.untilTaint(a, start); wait != z.cfg.NodeMonitorPeriod {
		t.Errorf("while all are lost: %s", wait)
	}
	back := start.Add(time.Minute)
	z.count([]*corev1.Node{a, lostNode("b", "b", false)}, neverLate, back)
	if wait := z.untilTaint(a, back); wait != z.cfg.NodeMonitorGracePeriod {
		t.Errorf("when the first is back: %s", wait)
	}
	if wait := z.untilTaint(a, back.Add(z.cfg.NodeMonitorGracePeriod)); wait != 0 {
		t.Errorf("after the grace: %s", wait)
	}
}

// Nodes that fall silent together do not become lost at the same moment.
func TestLateNodesDelayTheFirstTaint(t *testing.T) {
	a, b := lostNode("a", "a", true), lostNode("b", "b", false)
	z := zones{cfg: config.DefaultControllerManager()}
	start := time.Unix(1000, 0)
	if !z.count([]*corev1.Node{a, b}, func(n *corev1.Node) bool { return n == b }, start) || !z.areAllLost() {
		t.Error("it is not seen that all are lost or late")
	}
	if h := z.notReadyByZone()[zoneOf(b)]; h != (Health{1, 0}) {
		t.Errorf("the health of the zone of the late node is %+v", h)
	}
	if z.count([]*corev1.Node{a, b}, neverLate, start.Add(time.Second)) || z.areAllLost() {
		t.Error("all are lost when the late one has been heard of")
	}
}

func TestExcludedNodesDoNotCountForTheirZone(t *testing.T) {
	edge := lostNode("edge", "a", false)
	edge.Labels[excludeLabel] = ""
	z := zones{cfg: config.DefaultControllerManager()}
	if !z.count([]*corev1.Node{lostNode("a", "a", true), edge}, neverLate, time.Unix(1000, 0)) {
		t.Error("the excluded node, which is ready, keeps the others from being taken for lost altogether")
	}
}

// The test covers the metrics that dashboards and the alert on evictions use.
func TestZoneMetrics(t *testing.T) {
	c := newCounts()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c.collectors()...)
	a := zoneOf(lostNode("a", "a", false))
	c.set(map[string]Health{a: {Nodes: 4, Lost: 1}, "": {Nodes: 1}}, time.Second)
	c.evictions.WithLabelValues(a).Inc()
	c.set(map[string]Health{a: {Nodes: 4, Lost: 1}}, time.Second)
	var got []string
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			switch {
			case m.Gauge != nil:
				got = append(got, fmt.Sprintf("%s %q %v", f.GetName(), m.Label[0].GetValue(), m.Gauge.GetValue()))
			case m.Counter != nil:
				got = append(got, fmt.Sprintf("%s %q %v", f.GetName(), m.Label[0].GetValue(), m.Counter.GetValue()))
			}
		}
	}
	want := []string{
		`node_collector_evictions_total "" 0`, `node_collector_evictions_total ":\x00:a" 1`,
		`node_collector_unhealthy_nodes_in_zone "" 0`, `node_collector_unhealthy_nodes_in_zone ":\x00:a" 1`,
		`node_collector_zone_health "" 100`, `node_collector_zone_health ":\x00:a" 75`,
		`node_collector_zone_size "" 0`, `node_collector_zone_size ":\x00:a" 4`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("counted is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := testutil.CollectAndCount(c.sweepDuration); n != 1 {
		t.Errorf("how long it took is counted in %d metrics", n)
	}
}
