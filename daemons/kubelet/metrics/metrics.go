// Package metrics has the kubelet's own metrics, under upstream's names.
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kubelet/pod"
	"clusterctl/daemons/kubelet/volume"
	"clusterctl/daemons/run/measure"
)

// Metrics are the kubelet's own metrics, under upstream's names.
type Metrics struct {
	StartSeconds               prometheus.Histogram
	LeaseRenewals              prometheus.Counter
	Evictions                  *prometheus.CounterVec
	clientErrors, ServerErrors prometheus.Counter // failed certificate renewals
	Serving                    ServingCertificate

	// The following are nil if metrics are not served.
	stepSeconds, CgroupSeconds, mountSeconds *prometheus.HistogramVec
	observeSeconds, observeInterval          prometheus.Histogram
	mountErrors                              *prometheus.CounterVec
	Probes                                   *Probes
}

// evictionSignals are the signals that pods are evicted for. Their series exist from the start, because a rate needs a
// value from before the first eviction.
var evictionSignals = []string{
	"memory.available",
	"nodefs.available",
	"nodefs.inodesFree",
	"imagefs.available",
	"imagefs.inodesFree",
	"pid.available",
}

// New returns the metrics of a kubelet. If they are not served, most are not recorded either, because one
// process may run thousands of simulated kubelets.
func New(r prometheus.Registerer, served bool) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &Metrics{
		StartSeconds: measure.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_start_duration_seconds", Help: "From seeing a pod to its being ready.",
			Buckets: []float64{.05, .1, .15, .2, .25, .5, 1, 2, 5, 10, 30, 60, 120, 300},
		}),
		LeaseRenewals: counter("kubelet_lease_renewals_total", "Renewals of the node's lease."),
		Evictions: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "kubelet_evictions", Help: "Pods ended because the node ran short."},
			[]string{"eviction_signal"},
		),
		clientErrors: counter("kubelet_certificate_manager_client_expiration_renew_errors",
			"Failures to renew the client certificate."),
		ServerErrors: counter("kubelet_server_expiration_renew_errors", "Failures to renew the serving certificate."),
	}
	r.MustRegister(m.StartSeconds, m.LeaseRenewals, m.Evictions, m.clientErrors, m.ServerErrors)
	if !served {
		return m
	}
	for _, signal := range evictionSignals {
		m.Evictions.WithLabelValues(signal)
	}
	m.Probes = newProbeMetrics()
	buckets := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40, 60, 120}
	m.stepSeconds = measure.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kubelet_pod_worker_duration_seconds", Help: "How long steps of pods' lives took.", Buckets: buckets,
	}, []string{"operation_type"})
	m.observeSeconds = measure.NewHistogram(prometheus.HistogramOpts{
		Name: "kubelet_pleg_relist_duration_seconds", Help: "How long it took to ask the runtime what has become of " +
			"a pod.", Buckets: buckets,
	})
	m.observeInterval = measure.NewHistogram(prometheus.HistogramOpts{
		Name: "kubelet_pleg_relist_interval_seconds", Help: "Time between two times that the runtime was asked what " +
			"has become of a pod.", Buckets: buckets,
	})
	m.CgroupSeconds = measure.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kubelet_cgroup_manager_duration_seconds", Help: "How long operations on cgroups " +
			"took.", Buckets: prometheus.DefBuckets,
	}, []string{"operation_type"})
	m.mountSeconds = measure.NewHistogramVec(prometheus.HistogramOpts{
		Name: "storage_operation_duration_seconds", Help: "How long it took to set volumes up and to take them down.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"migrated", "operation_name", "status", "volume_plugin"})
	m.mountErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "storage_operation_errors_total", Help: "Failures to set volumes up or to take them down.",
	}, []string{"operation_name", "volume_plugin"})
	r.MustRegister(m.stepSeconds, m.observeSeconds, m.observeInterval, m.CgroupSeconds, m.mountSeconds, m.mountErrors)
	return m
}

// RecordStep records the duration of one step of a pod's worker.
func (m *Metrics) RecordStep(f *pod.Facts, step pod.Step, start time.Time) {
	if m.stepSeconds == nil {
		return
	}
	operation := "sync"
	switch {
	case f.Removed || f.Pod.DeletionTimestamp != nil || f.Evicted != nil:
		operation = "terminate"
	case step.Kind == pod.ResizeContainer:
		operation = "update"
	case len(f.Sandboxes) == 0:
		operation = "create"
	}
	m.stepSeconds.WithLabelValues(operation).Observe(time.Since(start).Seconds())
}

// RecordObserve records that the runtime was asked about a pod. last is the time of the previous request, or zero.
func (m *Metrics) RecordObserve(start, last time.Time) {
	if m.observeSeconds == nil {
		return
	}
	m.observeSeconds.Observe(time.Since(start).Seconds())
	if !last.IsZero() {
		m.observeInterval.Observe(start.Sub(last).Seconds())
	}
}

// RecordMount records that the volumes of a pod were set up or torn down, once for each volume plugin of the pod.
func (m *Metrics) RecordMount(p *corev1.Pod, operation string, start time.Time, err error) {
	if m.mountSeconds == nil {
		return
	}
	status, took := "success", time.Since(start).Seconds()
	if err != nil {
		status = "fail-unknown"
	}
	seen := map[string]bool{}
	for i := range p.Spec.Volumes {
		plugin := volumePlugin(p, &p.Spec.Volumes[i])
		if seen[plugin] {
			continue
		}
		seen[plugin] = true
		m.mountSeconds.WithLabelValues("false", operation, status, plugin).Observe(took)
		if err != nil {
			m.mountErrors.WithLabelValues(operation, plugin).Inc()
		}
	}
}

// Probes holds the probe metrics, which are served at /metrics/probes. There are several series for each probed
// container.
type Probes struct {
	registry *prometheus.Registry
	total    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newProbeMetrics() *Probes {
	container := []string{"probe_type", "container", "pod", "namespace"}
	c := &Probes{
		registry: prometheus.NewRegistry(),
		total: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "prober_probe_total", Help: "Results of the probes of a container."},
			append(container[:len(container):len(container)], "pod_uid", "result"),
		),
		seconds: measure.NewHistogramVec(
			prometheus.HistogramOpts{
				Name:    "prober_probe_duration_seconds",
				Help:    "How long the probes of a container took.",
				Buckets: prometheus.DefBuckets,
			},
			container,
		),
	}
	c.registry.MustRegister(c.total, c.seconds)
	return c
}

// Handler returns the handler of /metrics/probes.
func (c *Probes) Handler() http.Handler {
	if c == nil {
		return http.NotFoundHandler()
	}
	return promhttp.HandlerFor(c.registry, promhttp.HandlerOpts{})
}

// RecordProbe records one result of a probe.
func (c *Probes) RecordProbe(p *corev1.Pod, container, kind string, took time.Duration, err error) {
	if c == nil {
		return
	}
	result := "successful"
	if err != nil {
		result = "failed"
	}
	c.total.WithLabelValues(kind, container, p.Name, p.Namespace, string(p.UID), result).Inc()
	if err == nil {
		c.seconds.WithLabelValues(kind, container, p.Name, p.Namespace).Observe(took.Seconds())
	}
}

// RemovePod deletes the series of a pod that is gone.
func (c *Probes) RemovePod(p *corev1.Pod) {
	if c == nil {
		return
	}
	c.total.DeletePartialMatch(prometheus.Labels{"pod_uid": string(p.UID)})
	c.seconds.DeletePartialMatch(prometheus.Labels{"pod": p.Name, "namespace": p.Namespace})
}

// volumePlugin returns upstream's name of the plugin that mounts a volume.
func volumePlugin(p *corev1.Pod, v *corev1.Volume) string {
	name := "unknown"
	switch s := &v.VolumeSource; {
	case volume.ClaimName(p, v) != "":
		name = "local-volume"
	case s.ConfigMap != nil:
		name = "configmap"
	case s.Secret != nil:
		name = "secret"
	case s.Projected != nil:
		name = "projected"
	case s.EmptyDir != nil:
		name = "empty-dir"
	case s.DownwardAPI != nil:
		name = "downward-api"
	case s.HostPath != nil:
		name = "host-path"
	case s.CSI != nil:
		name = "csi"
	case s.Image != nil:
		name = "image"
	case s.NFS != nil:
		name = "nfs"
	}
	return "kubernetes.io/" + name
}
