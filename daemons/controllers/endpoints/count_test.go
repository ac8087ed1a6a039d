package endpoints

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"clusterctl/daemons/controllers/loop"
)

func TestSlicesAndTheirChangesAreCounted(t *testing.T) {
	services, slices := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), cache.NewIndexer(cache.MetaNamespaceKeyFunc,
		nil)
	near := corev1.ServiceTrafficDistributionPreferSameZone
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s"},
		Spec:       corev1.ServiceSpec{TrafficDistribution: &near},
	}
	ours := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "n",
			Name:      "ours",
			Labels:    map[string]string{discoveryv1.LabelManagedBy: managedBy},
		},
		Endpoints: make([]discoveryv1.Endpoint, 60),
	}
	also, empty := ours.DeepCopy(), ours.DeepCopy()
	also.Name = "also" // with 20 endpoints less in each, it would fit the first one
	empty.Name, empty.Endpoints, empty.AddressType = "empty", nil, discoveryv1.AddressTypeIPv6
	others := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "others"}}
	if err := errors.Join(services.Add(service),
		services.Add(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "plain"}}), slices.Add(ours),
		slices.Add(also), slices.Add(empty), slices.Add(others)); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	c := newCounts(loop.Context{Metrics: registry}, corelisters.NewServiceLister(services),
		discoverylisters.NewEndpointSliceLister(slices))
	c.observeWrites(
		service,
		Planned{
			Changes: Changes{
				Create: []*discoveryv1.EndpointSlice{ours, ours},
				Delete: []*discoveryv1.EndpointSlice{ours},
			},
			Added:   3,
			Removed: 1,
		},
		nil,
	)
	c.observeWrites(service, Planned{Changes: Changes{Update: []*discoveryv1.EndpointSlice{ours}}, Added: 1},
		apierrors.NewConflict(schema.GroupResource{}, "ours", nil))
	c.observeWrites(service, Planned{Changes: Changes{Update: []*discoveryv1.EndpointSlice{ours}}, Added: 1},
		errors.New("the API is away"))
	const want = `
# HELP endpoint_slice_controller_changes Slices that were changed, by how: create, update, delete.
# TYPE endpoint_slice_controller_changes counter
endpoint_slice_controller_changes{operation="create"} 2
endpoint_slice_controller_changes{operation="delete"} 1
endpoint_slice_controller_changes{operation="update"} 0
# HELP endpoint_slice_controller_desired_endpoint_slices Slices of Services with a selector that it would take if each were as full as it may be.
# TYPE endpoint_slice_controller_desired_endpoint_slices gauge
endpoint_slice_controller_desired_endpoint_slices 3
# HELP endpoint_slice_controller_endpoints_desired Endpoints of Services with a selector.
# TYPE endpoint_slice_controller_endpoints_desired gauge
endpoint_slice_controller_endpoints_desired 120
# HELP endpoint_slice_controller_num_endpoint_slices Slices of Services with a selector.
# TYPE endpoint_slice_controller_num_endpoint_slices gauge
endpoint_slice_controller_num_endpoint_slices 3
# HELP endpoint_slice_controller_services_count_by_traffic_distribution Services with a traffic distribution.
# TYPE endpoint_slice_controller_services_count_by_traffic_distribution gauge
endpoint_slice_controller_services_count_by_traffic_distribution{traffic_distribution="PreferSameZone"} 1
# HELP endpoint_slice_controller_syncs How often the slices of a Service were looked at, by what came of it: success, stale, error.
# TYPE endpoint_slice_controller_syncs counter
endpoint_slice_controller_syncs{result="error"} 1
endpoint_slice_controller_syncs{result="stale"} 1
endpoint_slice_controller_syncs{result="success"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "endpoint_slice_controller_changes",
		"endpoint_slice_controller_desired_endpoint_slices", "endpoint_slice_controller_endpoints_desired",
		"endpoint_slice_controller_num_endpoint_slices",
		"endpoint_slice_controller_services_count_by_traffic_distribution",
		"endpoint_slice_controller_syncs"); err != nil {
		t.Error(err)
	}
	checkEndpointsPerSync(t, registry)
	if n := testutil.CollectAndCount(c.perSync); n != 1 {
		t.Errorf("%d series of changes at a time", n)
	}
}

// checkEndpointsPerSync checks the histograms of endpoints that a sync adds and removes.
func checkEndpointsPerSync(t *testing.T, registry prometheus.Gatherer) {
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, f := range families {
		if h := f.GetMetric()[0].GetHistogram(); h != nil {
			sums[strings.TrimPrefix(f.GetName(), "endpoint_slice_controller_")] = h.GetSampleSum()
		}
	}
	if sums["endpoints_added_per_sync"] != 3 || sums["endpoints_removed_per_sync"] != 1 {
		t.Errorf("the histograms have the sums %v", sums)
	}
}

// An endpoint that moves from one slice to another is neither added nor removed.
func TestAddedAndRemovedEndpointsAreCounted(t *testing.T) {
	slice := func(name string, uids ...string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: name},
			AddressType: discoveryv1.AddressTypeIPv4,
		}
		for _, uid := range uids {
			s.Endpoints = append(s.Endpoints,
				discoveryv1.Endpoint{TargetRef: &corev1.ObjectReference{UID: types.UID(uid)}})
		}
		return s
	}
	existing := []*discoveryv1.EndpointSlice{slice("a", "1", "2", "3"), slice("b", "4", "5"), slice("c", "6")}
	added, updated, removed := Changes{
		Create: []*discoveryv1.EndpointSlice{
			slice("", "7", "4"),
		}, Update: []*discoveryv1.EndpointSlice{slice("a", "1", "3", "8")},
		Delete: []*discoveryv1.EndpointSlice{existing[1]},
	}.CountMoved(existing, targetUID, nil)
	if added != 2 || updated != 0 || removed != 2 {
		t.Errorf("%d endpoints came and %d went, want 7 and 8, and 2 and 5; %d changed", added, removed, updated)
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s"},
		Spec:       corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "p"},
		Status:     corev1.PodStatus{PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}},
	}
	if plan := Plan(service, []*corev1.Pod{pod}, nil,
		Topology{Zone: func(string) string { return "" }}); plan.Added != 1 ||
		plan.Removed != 0 {
		t.Errorf("a plan says that %d came and %d went", plan.Added, plan.Removed)
	}
}
