package mirroring

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/controllers/endpoints"
	"clusterctl/daemons/controllers/loop"
)

func TestMirrorsAndTheirChangesAreCounted(t *testing.T) {
	slice := func(name string, addresses ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "n",
				Name:      name,
				Labels:    map[string]string{discoveryv1.LabelManagedBy: managedBy},
			},
		}
		for _, a := range addresses {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
		}
		return s
	}
	existing := []*discoveryv1.EndpointSlice{slice("a", "1", "2", "3"), slice("b", "4", "5")}
	changed := slice("a", "1", "2", "6")
	changed.Endpoints[1].Conditions.Ready = ptr.To(false)
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	for _, s := range existing {
		if err := indexer.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	registry := prometheus.NewPedanticRegistry()
	c := newCounts(loop.Context{Metrics: registry}, discoverylisters.NewEndpointSliceLister(indexer))
	c.observeWrites(
		Mirrored{
			Changes: endpoints.Changes{
				Create: []*discoveryv1.EndpointSlice{slice("", "5", "7", "8")},
				Update: []*discoveryv1.EndpointSlice{changed},
				Delete: existing[1:],
			},
			Skipped: 9,
		},
		existing,
	)
	c.observeSync(time.Second)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		name := strings.TrimPrefix(f.GetName(), "endpoint_slice_mirroring_controller_")
		want, histogram := map[string]float64{"endpoints_added_per_sync": 3, "endpoints_updated_per_sync": 1,
			"endpoints_removed_per_sync": 2,
			"addresses_skipped_per_sync": 9, "endpoints_sync_duration": 1}[name]
		if got := f.GetMetric()[0].GetHistogram().GetSampleSum(); histogram && got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP endpoint_slice_mirroring_controller_changes Mirroring slices that were changed, by how: create, update, delete.
# TYPE endpoint_slice_mirroring_controller_changes counter
endpoint_slice_mirroring_controller_changes{operation="create"} 1
endpoint_slice_mirroring_controller_changes{operation="delete"} 1
endpoint_slice_mirroring_controller_changes{operation="update"} 1
# HELP endpoint_slice_mirroring_controller_desired_endpoint_slices Slices of mirrored Endpoints that it would take if each were as full as it may be.
# TYPE endpoint_slice_mirroring_controller_desired_endpoint_slices gauge
endpoint_slice_mirroring_controller_desired_endpoint_slices 1
# HELP endpoint_slice_mirroring_controller_endpoints_desired Endpoints of mirrored Endpoints.
# TYPE endpoint_slice_mirroring_controller_endpoints_desired gauge
endpoint_slice_mirroring_controller_endpoints_desired 5
# HELP endpoint_slice_mirroring_controller_num_endpoint_slices Slices of mirrored Endpoints.
# TYPE endpoint_slice_mirroring_controller_num_endpoint_slices gauge
endpoint_slice_mirroring_controller_num_endpoint_slices 2
`), "endpoint_slice_mirroring_controller_changes", "endpoint_slice_mirroring_controller_desired_endpoint_slices",
		"endpoint_slice_mirroring_controller_endpoints_desired",
		"endpoint_slice_mirroring_controller_num_endpoint_slices"); err != nil {
		t.Error(err)
	}
}
