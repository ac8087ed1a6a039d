package controllers

import (
	"log/slog"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/record"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/config"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

// nameRegistry is a registry that records the names of metrics, including those without series.
type nameRegistry struct{ names []string }

var fullName = regexp.MustCompile(`fqName: "([^"]+)"`)

func (d *nameRegistry) Register(c prometheus.Collector) error {
	descriptions := make(chan *prometheus.Desc, 100)
	c.Describe(descriptions)
	close(descriptions)
	for one := range descriptions {
		d.names = append(d.names, fullName.FindStringSubmatch(one.String())[1])
	}
	return nil
}

func (d *nameRegistry) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		_ = d.Register(c)
	}
}

func (*nameRegistry) Unregister(prometheus.Collector) bool { return false }

// The controllers' metrics have the names that upstream's dashboards and alerts use.
func TestControllerMetricsHaveUpstreamsNames(t *testing.T) {
	served := &nameRegistry{}
	client := fake.NewClientset()
	c := loop.Context{
		Client:    client,
		Metadata:  metadatafake.NewSimpleMetadataClient(runtime.NewScheme()),
		Informers: informers.New(client),
		Log:       slog.New(slog.DiscardHandler),
		Events:    record.NewFakeRecorder(1),
		Config:    config.DefaultControllerManager(),
		Metrics:   served,
	}
	for _, entry := range all {
		entry.new(c)
	}
	for _, want := range []string{
		"cronjob_controller_job_creation_skew_duration_seconds",
		"device_taint_eviction_controller_pod_deletion_duration_seconds",
		"device_taint_eviction_controller_pod_deletions_total",
		"dynamic_resource_allocation_resource_claims", "dynamic_resource_allocation_resourceclaim_creates_total",
		"endpoint_slice_controller_changes", "endpoint_slice_controller_desired_endpoint_slices",
		"endpoint_slice_controller_endpoints_added_per_sync",
		"endpoint_slice_controller_endpoints_desired", "endpoint_slice_controller_endpoints_removed_per_sync",
		"endpoint_slice_controller_endpointslices_changed_per_sync", "endpoint_slice_controller_num_endpoint_slices",
		"endpoint_slice_controller_services_count_by_traffic_distribution", "endpoint_slice_controller_syncs",
		"endpoint_slice_mirroring_controller_addresses_skipped_per_sync", "endpoint_slice_mirroring_controller_changes",
		"endpoint_slice_mirroring_controller_desired_endpoint_slices",
		"endpoint_slice_mirroring_controller_endpoints_added_per_sync",
		"endpoint_slice_mirroring_controller_endpoints_desired",
		"endpoint_slice_mirroring_controller_endpoints_removed_per_sync",
		"endpoint_slice_mirroring_controller_endpoints_sync_duration",
		"endpoint_slice_mirroring_controller_endpoints_updated_per_sync",
		"endpoint_slice_mirroring_controller_num_endpoint_slices",
		"ephemeral_volume_controller_create_failures_total", "ephemeral_volume_controller_create_total",
		"garbagecollector_controller_resources_sync_error_total",
		"horizontal_pod_autoscaler_controller_desired_replicas",
		"horizontal_pod_autoscaler_controller_metric_computation_duration_seconds",
		"horizontal_pod_autoscaler_controller_metric_computation_total",
		"horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers",
		"horizontal_pod_autoscaler_controller_reconciliation_duration_seconds",
		"horizontal_pod_autoscaler_controller_reconciliations_total",
		"job_controller_job_finished_indexes_total", "job_controller_job_pods_creation_total",
		"job_controller_job_pods_finished_total", "job_controller_job_sync_duration_seconds",
		"job_controller_job_syncs_total",
		"job_controller_jobs_by_external_controller_total", "job_controller_jobs_finished_total",
		"job_controller_pod_failures_handled_by_failure_policy_total",
		"job_controller_terminated_pods_tracking_finalizer_total",
		"node_collector_evictions_total", "node_collector_unhealthy_nodes_in_zone",
		"node_collector_update_all_nodes_health_duration_seconds",
		"node_collector_update_node_health_duration_seconds", "node_collector_zone_health", "node_collector_zone_size",
		"pod_gc_collector_force_delete_pod_errors_total", "pod_gc_collector_force_delete_pods_total",
		"pv_collector_bound_pv_count", "pv_collector_bound_pvc_count", "pv_collector_total_pv_count",
		"pv_collector_unbound_pv_count", "pv_collector_unbound_pvc_count",
		"root_ca_cert_publisher_sync_duration_seconds", "root_ca_cert_publisher_sync_total",
		"statefulset_controller_statefulset_max_unavailable", "statefulset_controller_statefulset_unavailable_replicas",
		"taint_eviction_controller_pod_deletion_duration_seconds", "taint_eviction_controller_pod_deletions_total",
		"ttl_after_finished_controller_job_deletion_duration_seconds",
	} {
		if !slices.Contains(served.names, want) {
			t.Errorf("%s is not served", want)
		}
	}
}
