// Package read answers gets, lists and watches from the watch cache.
package read

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/apiserver/cache"
)

// Reads answers requests that read.
type Reads struct {
	cache    *cache.Cache
	log      *slog.Logger
	past     chan struct{}   // holds a token for each list that reads an old revision from the store
	shutdown <-chan struct{} // closed when watches must end
	reads    readMetrics
	watches  watchMetrics
}

// New returns Reads from a cache. Watches end when shutdown is closed.
func New(c *cache.Cache, log *slog.Logger, shutdown <-chan struct{}) *Reads {
	return &Reads{cache: c, log: log, past: make(chan struct{}, maxPastLists), shutdown: shutdown}
}

// Metrics returns the metrics of reads and of the cache.
func (s *Reads) Metrics() []prometheus.Collector {
	return []prometheus.Collector{&s.watches, &s.reads, cacheCounts{s.cache}}
}
