package node

import (
	"cmp"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/config"
)

// Health holds the number of nodes, and how many of them are lost.
type Health struct{ Nodes, Lost int }

// Rate returns how many lost nodes of a zone per second get the NoExecute taint, which evicts their pods. The more
// nodes are lost, the more likely it is that the network or the control plane is at fault. Evicting everything would
// then only make it worse.
func Rate(zone Health, cfg config.ControllerManager) float64 {
	switch {
	case zone.Lost == zone.Nodes: // other zones are healthy and can run its pods
		return cfg.NodeEvictionRate
	case zone.Lost > 2 && float64(zone.Lost) >= cfg.UnhealthyZoneThreshold*float64(zone.Nodes):
		if zone.Nodes <= cfg.LargeClusterSizeThreshold {
			return 0
		}
		return cfg.SecondaryNodeEvictionRate
	}
	return cfg.NodeEvictionRate
}

// excludeLabel is the label of nodes that do not count for the health of their zone.
const excludeLabel = "node.kubernetes.io/exclude-disruption"

// zones decides which lost nodes get the NoExecute taint, and when: one after another in each zone, and none while all
// nodes of the cluster are lost.
type zones struct {
	cfg config.ControllerManager

	mu              sync.Mutex
	health          map[string]Health    // by zone; lost includes late nodes
	ready           map[string]Health    // by zone; lost means not ready
	lost            map[string]bool      // nodes that were not ready at the last count
	lastTainted     map[string]time.Time // by zone: when a node was last tainted
	isEveryNodeLost bool                 // at the last count, every node was lost or late
	// no node is tainted before this time, so that nodes can report after an outage
	noTaintsBefore time.Time
}

// count counts the nodes. dark reports whether all of them have become lost since the last count; then every node loses
// the taint. When the first of them reports again, the others get NodeMonitorGracePeriod to report as well. Late nodes,
// which will soon be lost, count as lost here. If all nodes fall silent, they do not become lost at the same moment,
// and the first must not be evicted before the last is counted.
func (z *zones) count(nodes []*corev1.Node, isLate func(*corev1.Node) bool, now time.Time) (dark bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	var sum Health
	before := z.isEveryNodeLost
	z.health, z.ready, z.lost = map[string]Health{}, map[string]Health{}, map[string]bool{}
	for _, n := range nodes {
		lost := !isReady(n)
		if lost {
			z.lost[n.Name] = true
		}
		if _, ok := n.Labels[excludeLabel]; ok {
			continue
		}
		zone := zoneOf(n)
		z.ready[zone] = z.ready[zone].withNode(lost)
		lost = lost || isLate(n)
		z.health[zone] = z.health[zone].withNode(lost)
		sum = sum.withNode(lost)
	}
	z.isEveryNodeLost = sum.Nodes > 0 && sum.Lost == sum.Nodes
	if before && !z.isEveryNodeLost {
		z.noTaintsBefore = now.Add(z.cfg.NodeMonitorGracePeriod)
	}
	return z.isEveryNodeLost && !before
}

// areAllLost reports whether all nodes were lost at the last count.
func (z *zones) areAllLost() bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.isEveryNodeLost
}

// untilTaint returns the minimum time before a lost node may get the taint. Zero means that it gets the taint now, and
// that the next node of its zone has to wait. A node must have been counted as lost first, since all nodes may be lost
// with it.
func (z *zones) untilTaint(n *corev1.Node, now time.Time) time.Duration {
	z.mu.Lock()
	defer z.mu.Unlock()
	if !z.lost[n.Name] || z.isEveryNodeLost {
		return z.cfg.NodeMonitorPeriod
	}
	if left := z.noTaintsBefore.Sub(now); left > 0 {
		return left
	}
	zone := zoneOf(n)
	rate := z.cfg.NodeEvictionRate
	if health, ok := z.health[zone]; ok { // a zone is missing if all its nodes are excluded
		rate = Rate(health, z.cfg)
	}
	if rate <= 0 {
		return z.cfg.NodeMonitorPeriod
	}
	if left := z.lastTainted[zone].Add(time.Duration(float64(time.Second) / rate)).Sub(now); left > 0 {
		return left
	}
	if z.lastTainted == nil {
		z.lastTainted = map[string]time.Time{}
	}
	z.lastTainted[zone] = now
	return 0
}

// notReadyByZone returns, by zone, how many nodes were not ready at the last count.
func (z *zones) notReadyByZone() map[string]Health {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.ready
}

// withNode returns the health with one more node.
func (h Health) withNode(lost bool) Health {
	h.Nodes++
	if lost {
		h.Lost++
	}
	return h
}

// zoneOf returns the name of a node's zone as upstream's metrics have it. It is empty for nodes with neither region nor
// zone.
func zoneOf(n *corev1.Node) string {
	region := cmp.Or(n.Labels[corev1.LabelTopologyRegion], n.Labels[corev1.LabelFailureDomainBetaRegion])
	zone := cmp.Or(n.Labels[corev1.LabelTopologyZone], n.Labels[corev1.LabelFailureDomainBetaZone])
	if region == "" && zone == "" {
		return ""
	}
	return region + ":\x00:" + zone
}
