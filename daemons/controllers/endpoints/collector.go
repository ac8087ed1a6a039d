package endpoints

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/controllers/loop"
)

// sliceCollector collects the metrics of the slices of one manager at each scrape.
type sliceCollector struct {
	manager                   string
	slices                    discoverylisters.EndpointSliceLister
	count, endpoints, desired *prometheus.Desc
}

// CountSlices registers metrics about the slices of a manager, with names that begin with prefix. of names the owners
// of the slices in the help texts.
func CountSlices(c loop.Context, prefix, manager, of string, slices discoverylisters.EndpointSliceLister) {
	c.RegisterMetrics(sliceCollector{
		manager: manager, slices: slices,
		count:     prometheus.NewDesc(prefix+"num_endpoint_slices", "Slices of "+of+".", nil, nil),
		endpoints: prometheus.NewDesc(prefix+"endpoints_desired", "Endpoints of "+of+".", nil, nil),
		desired: prometheus.NewDesc(prefix+"desired_endpoint_slices",
			"Slices of "+of+" that it would take if each were as full as it may be.", nil, nil),
	})
}

// Describe implements prometheus.Collector.
func (c sliceCollector) Describe(to chan<- *prometheus.Desc) {
	to <- c.count
	to <- c.endpoints
	to <- c.desired
}

// Collect implements prometheus.Collector.
func (c sliceCollector) Collect(to chan<- prometheus.Metric) {
	slices, err := c.slices.List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelManagedBy: c.manager}))
	if err != nil {
		return
	}
	endpoints, fewest := 0, 0
	together := map[string]int{} // endpoints by the key of slices that they could share
	for _, s := range slices {
		endpoints += len(s.Endpoints)
		together[sliceGroupKey(s)] += len(s.Endpoints)
	}
	for _, n := range together {
		fewest += max(1, (n+sliceSize-1)/sliceSize) // a service without endpoints has one slice
	}
	to <- prometheus.MustNewConstMetric(c.count, prometheus.GaugeValue, float64(len(slices)))
	to <- prometheus.MustNewConstMetric(c.endpoints, prometheus.GaugeValue, float64(endpoints))
	to <- prometheus.MustNewConstMetric(c.desired, prometheus.GaugeValue, float64(fewest))
}

// sliceGroupKey returns the same key for all slices whose endpoints could be in one slice: those of the same service,
// address family and ports.
func sliceGroupKey(s *discoveryv1.EndpointSlice) string {
	key := s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName] + "/" + string(s.AddressType)
	for _, p := range s.Ports {
		key += "/" + ptr.Deref(p.Name, "") + ":" + strconv.Itoa(int(ptr.Deref(p.Port, 0))) + string(
			ptr.Deref(p.Protocol, ""),
		) + ptr.Deref(p.AppProtocol, "")
	}
	return key
}
