package resourceclaim

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
)

// claimCollector collects the numbers of claims at each scrape.
type claimCollector struct {
	claims resourcelisters.ResourceClaimLister
}

var claimsDesc = prometheus.NewDesc("dynamic_resource_allocation_resource_claims",
	"ResourceClaims, by whether they have their devices, whether for administrators, and what they were made from: "+
		"resource_claim_template, extended_resource, or empty.", []string{"allocated", "admin_access", "source"}, nil)

// Describe implements prometheus.Collector.
func (claimCollector) Describe(to chan<- *prometheus.Desc) { to <- claimsDesc }

// Collect implements prometheus.Collector.
func (c claimCollector) Collect(to chan<- prometheus.Metric) {
	list, err := c.claims.List(labels.Everything())
	if err != nil {
		return
	}
	type kind struct {
		allocated, admin bool
		source           string
	}
	counts := map[kind]int{}
	for _, claim := range list {
		counts[kind{claim.Status.Allocation != nil, hasAdminAccess(claim), sourceOf(claim)}]++
	}
	for k, n := range counts {
		to <- prometheus.MustNewConstMetric(claimsDesc, prometheus.GaugeValue, float64(n),
			strconv.FormatBool(k.allocated), strconv.FormatBool(k.admin), k.source)
	}
}

func sourceOf(c *resourcev1.ResourceClaim) string {
	switch {
	case c.Annotations[entryAnnotation] != "":
		return "resource_claim_template"
	case c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true":
		return "extended_resource"
	}
	return ""
}

// hasAdminAccess reports whether a claim requests admin access, which also covers devices that are in use.
func hasAdminAccess(c *resourcev1.ResourceClaim) bool {
	return slices.ContainsFunc(c.Spec.Devices.Requests, func(r resourcev1.DeviceRequest) bool {
		return r.Exactly != nil && r.Exactly.AdminAccess != nil && *r.Exactly.AdminAccess
	})
}
