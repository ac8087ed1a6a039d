package mirroring

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"

	"clusterctl/daemons/controllers/endpoints"
	"clusterctl/daemons/controllers/loop"
)

// counts holds the metrics of mirrored Endpoints, under upstream's names.
type counts struct {
	changes                                          *prometheus.CounterVec
	added, updated, removed, skipped, perSyncSeconds *prometheus.HistogramVec
}

func newCounts(c loop.Context, slices discoverylisters.EndpointSliceLister) counts {
	const sub = "endpoint_slice_mirroring_controller_"
	endpoints.CountSlices(c, sub, managedBy, "mirrored Endpoints", slices)
	perSync := func(name, help string) *prometheus.HistogramVec {
		return c.Histogram(sub+name+"_per_sync", help+" when Endpoints were looked at.", endpoints.EndpointBuckets)
	}
	return counts{
		changes: c.Counter(sub+"changes", "Mirroring slices that were changed, by how: create, update, delete.",
			"operation"),
		added:   perSync("endpoints_added", "Endpoints that came"),
		updated: perSync("endpoints_updated", "Endpoints that changed"),
		removed: perSync("endpoints_removed", "Endpoints that went"),
		skipped: perSync("addresses_skipped", "Addresses that were left out"),
		perSyncSeconds: c.Histogram(sub+"endpoints_sync_duration", "Seconds that it took to look at Endpoints.",
			prometheus.ExponentialBuckets(0.001, 2, 15)),
	}
}

// observeSync records how long a sync took.
func (c *counts) observeSync(took time.Duration) {
	c.perSyncSeconds.WithLabelValues().Observe(took.Seconds())
}

// observeWrites records the changes to the existing slices.
func (c *counts) observeWrites(m Mirrored, existing []*discoveryv1.EndpointSlice) {
	for operation, n := range map[string]int{"create": len(m.Create), "update": len(m.Update),
		"delete": len(m.Delete)} {
		c.changes.WithLabelValues(operation).Add(float64(n))
	}
	added, updated, removed := m.CountMoved(existing, func(e discoveryv1.Endpoint) string { return e.Addresses[0] },
		func(a, b discoveryv1.Endpoint) bool { return !apiequality.Semantic.DeepEqual(a, b) })
	c.added.WithLabelValues().Observe(float64(added))
	c.updated.WithLabelValues().Observe(float64(updated))
	c.removed.WithLabelValues().Observe(float64(removed))
	c.skipped.WithLabelValues().Observe(float64(m.Skipped))
}
