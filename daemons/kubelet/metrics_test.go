package kubelet

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"net/http/httptest"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/hollow"
)

// sampleSet maps metric names to the samples of one scrape. A histogram has its count as value.
type sampleSet map[string][]metricSample

type metricSample struct {
	labels map[string]string
	value  float64
}

// scrape requests the metrics at a path of the kubelet.
func scrape(t *testing.T, k *Kubelet, path string) sampleSet {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
	r.Header.Set("Accept",
		"application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited")
	k.newServer().Routes().ServeHTTP(w, r)
	if w.Code != 200 {
		t.Fatalf("%s: status %d: %s", path, w.Code, w.Body)
	}
	found := sampleSet{}
	for in := bufio.NewReader(w.Body); ; {
		f := &dto.MetricFamily{}
		if err := protodelim.UnmarshalFrom(in, f); errors.Is(err, io.EOF) {
			return found
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, m := range f.Metric {
			o := metricSample{labels: map[string]string{}}
			for _, l := range m.Label {
				o.labels[l.GetName()] = l.GetValue()
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				o.value = m.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				o.value = m.GetGauge().GetValue()
			case dto.MetricType_HISTOGRAM:
				o.value = float64(m.GetHistogram().GetSampleCount())
			}
			found[f.GetName()] = append(found[f.GetName()], o)
		}
	}
}

// value returns the value of the series with the given labels, or NaN if there is none.
func (s sampleSet) value(name string, labels ...string) float64 {
	for _, o := range s[name] {
		fits := true
		for i := 0; i < len(labels); i += 2 {
			fits = fits && o.labels[labels[i]] == labels[i+1]
		}
		if fits {
			return o.value
		}
	}
	return math.NaN()
}

// newScrapedNode returns a kubelet with metrics and a ready pod.
func newScrapedNode(t *testing.T) (*node, *Kubelet) {
	n := newNode(t)
	return n, n.scrapedKubelet()
}

func (n *node) scrapedKubelet() *Kubelet {
	n.t.Helper()
	n.options.NoServer = false
	n.file.Address, n.file.Port, n.file.HealthzPort = "127.0.0.1", 0, 0
	k := n.newKubelet()
	n.runKubelet(k)
	p := simplePod("web")
	p.Spec.Volumes = []corev1.Volume{
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{
			Exec: &corev1.ExecAction{Command: []string{"true"}},
		}, PeriodSeconds: 1, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 1,
	}
	n.create(p)
	n.until("the pod to be ready", func() bool { return isReady(n.pod("web")) })
	return k
}

func TestMetricsHaveTheNamesThatAlertsUse(t *testing.T) {
	n, k := newScrapedNode(t)
	n.until("the metrics", func() bool { return scrape(t, k, "/metrics").value("kubelet_running_pods") == 1 })
	s := scrape(t, k, "/metrics")
	for _, x := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"kubelet_node_name", []string{"node", "n1"}, 1},
		{"kubelet_running_containers", []string{"container_state", "running"}, 1},
		{"kubelet_running_containers", []string{"container_state", "exited"}, 0},
		{"kubelet_evictions", []string{"eviction_signal", "memory.available"}, 0},
		{"kubelet_evictions", []string{"eviction_signal", "nodefs.available"}, 0},
		{"kubelet_node_config_error", nil, 0},
		{"kubelet_pod_start_duration_seconds", nil, 1},
		{"kubelet_runtime_operations_total", []string{"operation_type", "run_podsandbox"}, 1},
		{"kubelet_runtime_operations_total", []string{"operation_type", "create_container"}, 1},
		{"kubelet_runtime_operations_duration_seconds", []string{"operation_type", "start_container"}, 1},
		{"kubelet_certificate_manager_client_expiration_renew_errors", nil, 0},
		{"kubelet_server_expiration_renew_errors", nil, 0},
		{"volume_manager_total_volumes",
			[]string{"plugin_name", "kubernetes.io/empty-dir", "state", "desired_state_of_world"}, 1},
		{"volume_manager_total_volumes",
			[]string{"plugin_name", "kubernetes.io/empty-dir", "state", "actual_state_of_world"}, 1},
		{"storage_operation_duration_seconds",
			[]string{"operation_name", "volume_mount", "status", "success", "volume_plugin", "kubernetes.io/empty-dir",
				"migrated", "false"}, 1},
	} {
		if got := s.value(x.name, x.labels...); got != x.want {
			t.Errorf("%s%q is %v, want %v", x.name, x.labels, got, x.want)
		}
	}
	for _, name := range []string{"kubelet_pleg_relist_duration_seconds", "kubelet_pleg_relist_interval_seconds",
		"kubelet_pod_worker_duration_seconds",
		"kubelet_cgroup_manager_duration_seconds", "kubelet_certificate_manager_server_ttl_seconds"} {
		if got := s.value(name); !(got > 0) || math.IsInf(got, 0) {
			t.Errorf("%s is %v", name, got)
		}
	}
	if s := scrape(t, k, "/metrics/slis"); s.value("kubernetes_healthcheck", "name", "syncloop", "type", "livez") != 1 {
		t.Errorf("/metrics/slis has %v", s)
	}
}

func TestProbeMetricsAreRemovedWithTheirPod(t *testing.T) {
	n, k := newScrapedNode(t)
	labels := []string{"probe_type", "Readiness", "container", "main", "pod", "web", "namespace", "default"}
	n.until("two results", func() bool {
		s := scrape(t, k, "/metrics/probes")
		return s.value("prober_probe_total", append(labels, "pod_uid", "uid-web", "result", "successful")...) > 1 &&
			s.value("prober_probe_duration_seconds", labels...) > 1
	})
	if err := n.client.CoreV1().Pods("default").Delete(context.Background(), "web",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	n.until("the series to go", func() bool {
		s := scrape(t, k, "/metrics/probes")
		return len(s["prober_probe_total"])+len(s["prober_probe_duration_seconds"]) == 0
	})
	if got := scrape(t, k, "/metrics").value("storage_operation_duration_seconds", "operation_name", "volume_unmount",
		"volume_plugin", "kubernetes.io/empty-dir"); !(got >= 1) {
		t.Errorf("volumes were taken down %v times", got)
	}
}

// If the runtime has no metrics, the kubelet computes the most important ones from pod statistics.
func TestContainersHaveMetricsWithoutRuntimeMetrics(t *testing.T) {
	_, k := newScrapedNode(t)
	s := scrape(t, k, "/metrics/cadvisor")
	of := []string{"namespace", "default", "pod", "web", "container", "main", "image", "busybox:1"}
	for _, name := range []string{"container_cpu_usage_seconds_total", "container_memory_working_set_bytes",
		"container_start_time_seconds"} {
		if math.IsNaN(s.value(name, of...)) {
			t.Errorf("%s%q is not there: %v", name, of, s[name])
		}
		for _, o := range s[name] {
			if o.labels["image"] != "" && (o.labels["id"] == "" || o.labels["name"] == "") {
				t.Errorf("%s: labels are %v", name, o.labels)
			}
		}
	}
	if s.value("machine_cpu_cores") != 4 || s.value("machine_memory_bytes") != 8<<30 ||
		math.IsNaN(s.value("container_memory_working_set_bytes", "id", "/")) ||
		math.IsNaN(s.value("container_cpu_usage_seconds_total", "id", "/")) {
		t.Errorf("the machine has %v, %v", s["machine_cpu_cores"], s["machine_memory_bytes"])
	}
}

// measuringRuntime is a runtime with container metrics.
type measuringRuntime struct{ *hollow.Runtime }

func (r measuringRuntime) PodMetrics(ctx context.Context) ([]*criapi.MetricDescriptor,
	[]*criapi.PodSandboxMetrics, error) {
	keys := []string{"id", "namespace", "pod", "container", "image"}
	about := []*criapi.MetricDescriptor{
		{Name: "container_cpu_usage_seconds_total", Help: "theirs", LabelKeys: keys},
		{Name: "container_fs_writes_total", Help: "writes", LabelKeys: append(keys[:len(keys):len(keys)], "device")},
		{Name: "container_network_receive_bytes_total", Help: "received",
			LabelKeys: append(keys[:len(keys):len(keys)], "interface")},
	}
	list, err := r.ListContainers(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	var pods []*criapi.PodSandboxMetrics
	for _, c := range list {
		metric := func(name string, value uint64, more ...string) *criapi.Metric {
			labels := append([]string{c.Id, "default", "web", "main", "busybox:1"}, more...)
			return &criapi.Metric{
				Name:        name,
				Timestamp:   1,
				MetricType:  criapi.MetricType_COUNTER,
				Value:       &criapi.UInt64Value{Value: value},
				LabelValues: labels,
			}
		}
		pods = append(pods, &criapi.PodSandboxMetrics{
			Metrics: []*criapi.Metric{metric("container_network_receive_bytes_total", 5, "eth0"),
				metric("container_network_receive_bytes_total", 6, "net1")},
			ContainerMetrics: []*criapi.ContainerMetrics{{Metrics: []*criapi.Metric{
				metric("container_cpu_usage_seconds_total",
					1<<40), metric("container_fs_writes_total", 7, "/dev/vda"), metric("container_fs_writes_total", 8),
				metric("unknown", 9),
			}}},
		})
	}
	return about, pods, nil
}

func TestRuntimeMetricsOfContainersAreServed(t *testing.T) {
	n := newNode(t)
	n.options.Runtime = measuringRuntime{n.runtime}
	k := n.scrapedKubelet()
	s := scrape(t, k, "/metrics/cadvisor")
	if got := s.value("container_fs_writes_total", "pod", "web", "device", "/dev/vda"); got != 7 ||
		len(s["container_fs_writes_total"]) != 1 {
		t.Errorf("writes are %v", s["container_fs_writes_total"])
	}
	for _, o := range s["container_fs_writes_total"] {
		if o.labels["name"] == "" || o.labels["name"] != o.labels["id"] {
			t.Errorf("labels are %v", o.labels)
		}
	}
	if s.value("container_network_receive_bytes_total", "interface", "eth0") != 5 ||
		s.value("container_network_receive_bytes_total", "interface", "net1") != 6 {
		t.Errorf("received: %v", s["container_network_receive_bytes_total"])
	}
	// The kubelet computes CPU time itself, because whole seconds are too coarse for rates.
	if got := s.value("container_cpu_usage_seconds_total", "container", "main"); !(got < 1<<30) {
		t.Errorf("CPU time is %v", got)
	}
	for _, name := range []string{"unknown", "container_memory_working_set_bytes"} {
		for _, o := range s[name] {
			if o.labels["id"] != "/" {
				t.Errorf("%s is there: %v", name, o.labels)
			}
		}
	}
}

// A process may have thousands of simulated nodes, whose metrics are not served.
func TestSimulatedNodesHaveFewMetrics(t *testing.T) {
	n := newNode(t)
	k := n.newKubelet()
	families, err := k.env.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "kubelet_runtime") || strings.HasPrefix(f.GetName(), "kubelet_pleg") {
			t.Errorf("%s is kept", f.GetName())
		}
	}
}
