package resourceclaim

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

func TestClaimsOfDevicesAreCounted(t *testing.T) {
	claims := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	add := func(name string, annotations map[string]string, change func(*resourcev1.ResourceClaim)) {
		t.Helper()
		c := &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, Annotations: annotations},
		}
		change(c)
		if err := claims.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	nothing := func(*resourcev1.ResourceClaim) {}
	allocated := func(c *resourcev1.ResourceClaim) { c.Status.Allocation = &resourcev1.AllocationResult{} }
	add("a", nil, allocated)
	add("b", map[string]string{entryAnnotation: "entry"}, nothing)
	add("c", map[string]string{entryAnnotation: "entry"}, nothing)
	add("d", map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}, allocated)
	add("e", nil, func(c *resourcev1.ResourceClaim) {
		c.Spec.Devices.Requests = []resourcev1.DeviceRequest{
			{Exactly: &resourcev1.ExactDeviceRequest{AdminAccess: ptr.To(true)}},
		}
	})
	const want = `
# HELP dynamic_resource_allocation_resource_claims ResourceClaims, by whether they have their devices, whether for administrators, and what they were made from: resource_claim_template, extended_resource, or empty.
# TYPE dynamic_resource_allocation_resource_claims gauge
dynamic_resource_allocation_resource_claims{admin_access="false",allocated="false",source="resource_claim_template"} 2
dynamic_resource_allocation_resource_claims{admin_access="false",allocated="true",source=""} 1
dynamic_resource_allocation_resource_claims{admin_access="false",allocated="true",source="extended_resource"} 1
dynamic_resource_allocation_resource_claims{admin_access="true",allocated="false",source=""} 1
`
	if err := testutil.CollectAndCompare(claimCollector{resourcelisters.NewResourceClaimLister(claims)},
		strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
