package node

import (
	"cmp"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/config"
)

// Health is how many nodes there are, and how many of them are lost.
type Health struct{ Nodes, Lost int }

// Rate returns how many lost nodes of a zone get the NoExecute taint each second, by which pods are moved away from
// them. The more is lost, the likelier it is the network, or this side, that broke: moving everything would only make
// it worse.
func Rate(zone Health, cfg config.ControllerManager) float64 {
	switch {
	case zone.Lost == zone.Nodes: // other zones are well and can take its pods
		return cfg.NodeEvictionRate
	case zone.Lost > 2 && float64(zone.Lost) >= cfg.UnhealthyZoneThreshold*float64(zone.Nodes):
		if zone.Nodes <= cfg.LargeClusterSizeThreshold {
			return 0
		}
		return cfg.SecondaryNodeEvictionRate
	}
	return cfg.NodeEvictionRate
}

// excluded is the label of nodes whose health says nothing of their zone's.
const excluded = "node.kubernetes.io/exclude-disruption"

// zones says which lost nodes get the NoExecute taint, and when: in each zone one after the other, and none while all
// nodes of the cluster are lost.
type zones struct {
	cfg config.ControllerManager

	mu     sync.Mutex
	health map[string]Health    // of those that are lost or late
	ready  map[string]Health    // of those that are not ready
	lost   map[string]bool      // nodes that were not ready when they were last counted
	last   map[string]time.Time // by zone, when a node was last tainted
	all    bool                 // every node was lost or late when they were last counted
	calm   time.Time            // until when none is tainted: nodes that are back have not all said so
}

// count looks at the nodes. It reports whether all of them are lost since this time: then none keeps the taint. When the
// first is heard of again, each of the others gets the grace that silence has. Nodes are late that will be lost soon:
// when all fall silent at once, they do not all become lost in the same moment, and the first of them is not to be
// given up before the last is.
func (z *zones) count(nodes []*corev1.Node, late func(*corev1.Node) bool, now time.Time) (dark bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	var sum Health
	was := z.all
	z.health, z.ready, z.lost = map[string]Health{}, map[string]Health{}, map[string]bool{}
	for _, n := range nodes {
		lost := !ready(n)
		if lost {
			z.lost[n.Name] = true
		}
		if _, ok := n.Labels[excluded]; ok {
			continue
		}
		zone := zoneOf(n)
		z.ready[zone] = z.ready[zone].and(lost)
		lost = lost || late(n)
		z.health[zone] = z.health[zone].and(lost)
		sum = sum.and(lost)
	}
	z.all = sum.Nodes > 0 && sum.Lost == sum.Nodes
	if was && !z.all {
		z.calm = now.Add(z.cfg.NodeMonitorGracePeriod)
	}
	return z.all && !was
}

// dark reports whether all nodes were lost when they were last counted.
func (z *zones) dark() bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.all
}

// wait returns how long a lost node has to wait at least for the taint; zero gives it, and the next of its zone waits
// for that. A node that has just been lost is counted first: all of them may be lost with it.
func (z *zones) wait(n *corev1.Node, now time.Time) time.Duration {
	z.mu.Lock()
	defer z.mu.Unlock()
	if !z.lost[n.Name] || z.all {
		return z.cfg.NodeMonitorPeriod
	}
	if left := z.calm.Sub(now); left > 0 {
		return left
	}
	zone := zoneOf(n)
	rate := z.cfg.NodeEvictionRate
	if health, ok := z.health[zone]; ok { // all of its nodes may be excluded
		rate = Rate(health, z.cfg)
	}
	if rate <= 0 {
		return z.cfg.NodeMonitorPeriod
	}
	if left := z.last[zone].Add(time.Duration(float64(time.Second) / rate)).Sub(now); left > 0 {
		return left
	}
	if z.last == nil {
		z.last = map[string]time.Time{}
	}
	z.last[zone] = now
	return 0
}

// seen returns how many nodes of each zone were not ready when they were last counted.
func (z *zones) seen() map[string]Health {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.ready
}

// and is the health with one more node.
func (h Health) and(lost bool) Health {
	h.Nodes++
	if lost {
		h.Lost++
	}
	return h
}

// zoneOf returns the name of a node's zone, as metrics have it; empty for nodes that say neither region nor zone.
func zoneOf(n *corev1.Node) string {
	region := cmp.Or(n.Labels[corev1.LabelTopologyRegion], n.Labels[corev1.LabelFailureDomainBetaRegion])
	zone := cmp.Or(n.Labels[corev1.LabelTopologyZone], n.Labels[corev1.LabelFailureDomainBetaZone])
	if region == "" && zone == "" {
		return ""
	}
	return region + ":\x00:" + zone
}
