package taint

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"

	"clusterctl/daemons/config"
)

// Health is how many nodes there are, and how many of them are lost: not ready, or not
// heard of.
type Health struct{ Nodes, Lost int }

// Pace returns how long to leave between two lost nodes of a zone that pods are moved
// away from; false says that none is to be moved now. The more is lost, the likelier it
// is the network, or this side, that broke: moving everything would only make it worse.
func Pace(zone, cluster Health, cfg config.ControllerManager) (time.Duration, bool) {
	rate := cfg.NodeEvictionRate
	switch {
	case cluster.Lost == cluster.Nodes:
		return 0, false
	case zone.Lost == zone.Nodes: // the others are well and can take its pods
	case zone.Lost > 2 && float64(zone.Lost) >= cfg.UnhealthyZoneThreshold*float64(zone.Nodes):
		if cluster.Nodes <= cfg.LargeClusterSizeThreshold {
			return 0, false
		}
		rate = cfg.SecondaryNodeEvictionRate
	}
	if rate <= 0 {
		return 0, false
	}
	return time.Duration(float64(time.Second) / rate), true
}

// gate lets the pods of lost nodes go one node after the other, in each zone.
type gate struct {
	nodes corelisters.NodeLister
	cfg   config.ControllerManager

	mu     sync.Mutex
	open   map[string]bool      // nodes whose pods may go
	next   map[string]time.Time // by zone, when the next node's may
	zones  map[string]Health
	all    Health
	looked time.Time
	blind  bool      // every node was lost when last looked at
	calm   time.Time // until when none is left: nodes that are back have not all said so
}

func newGate(nodes corelisters.NodeLister, cfg config.ControllerManager) *gate {
	return &gate{nodes: nodes, cfg: cfg, open: map[string]bool{}, next: map[string]time.Time{}}
}

// fresh is for how long a look at all nodes holds: many pods ask at once.
const fresh = time.Second

// wait returns how long a lost node's pods have to wait at least; zero lets them go.
func (g *gate) wait(n *corev1.Node, now time.Time) (time.Duration, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[n.Name] {
		return 0, nil
	}
	if err := g.look(now); err != nil {
		return 0, err
	}
	if left := g.calm.Sub(now); left > 0 {
		return left, nil
	}
	zone := zoneOf(n)
	every, ok := Pace(g.zones[zone], g.all, g.cfg)
	if !ok {
		return g.cfg.NodeMonitorPeriod, nil
	}
	if left := g.next[zone].Sub(now); left > 0 {
		return left, nil
	}
	g.open[n.Name] = true
	g.next[zone] = now.Add(every)
	return 0, nil
}

// close forgets a node that is well, or gone.
func (g *gate) close(node string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, node)
}

// notice looks at the nodes when one of them has just been lost or found.
func (g *gate) notice(now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.looked = time.Time{}
	return g.look(now)
}

// look counts the nodes. When the first is heard of again after all were lost, it was not the nodes
// that broke: each of them gets the grace that silence has before its pods are moved.
func (g *gate) look(now time.Time) error {
	if now.Sub(g.looked) <= fresh {
		return nil
	}
	if err := g.count(); err != nil {
		return err
	}
	g.looked = now
	blind := g.all.Nodes > 0 && g.all.Lost == g.all.Nodes
	if g.blind && !blind {
		g.calm = now.Add(g.cfg.NodeMonitorGracePeriod)
		clear(g.open)
	}
	g.blind = blind
	return nil
}

func (g *gate) count() error {
	nodes, err := g.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	g.zones, g.all = map[string]Health{}, Health{}
	for _, n := range nodes {
		zone := g.zones[zoneOf(n)]
		zone.Nodes++
		g.all.Nodes++
		if lost, _ := split(noExecute(n)); len(lost) > 0 {
			zone.Lost++
			g.all.Lost++
		}
		g.zones[zoneOf(n)] = zone
	}
	return nil
}

func zoneOf(n *corev1.Node) string {
	return n.Labels[corev1.LabelTopologyRegion] + "/" + n.Labels[corev1.LabelTopologyZone]
}

// split tells the taints of lost nodes from those that somebody put there.
func split(taints []corev1.Taint) (lost, put []corev1.Taint) {
	for _, t := range taints {
		if t.Key == corev1.TaintNodeUnreachable || t.Key == corev1.TaintNodeNotReady {
			lost = append(lost, t)
		} else {
			put = append(put, t)
		}
	}
	return lost, put
}
