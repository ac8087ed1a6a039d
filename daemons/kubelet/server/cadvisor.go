package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/cri"
)

// scrapeTime is how long a runtime has to answer a scrape of /metrics/cadvisor.
const scrapeTime = 10 * time.Second

// cadvisor serves container metrics under cAdvisor's names. The values are the runtime's own metrics if it has them,
// otherwise metrics computed from the pod statistics of the runtime.
func (s *Server) cadvisor() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), scrapeTime)
		defer cancel()
		list, err := s.containerMetrics(ctx)
		if err != nil {
			http.Error(w, cri.Message(err), http.StatusInternalServerError)
			return
		}
		registry := prometheus.NewRegistry()
		if err := registry.Register(collectedMetrics(append(list, s.machineMetrics()...))); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}).ServeHTTP(w, r)
	})
}

// collectedMetrics is a collector of metrics that were computed before. It describes no metrics, because they differ
// between scrapes.
type collectedMetrics []prometheus.Metric

// Describe implements prometheus.Collector.
func (collectedMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (f collectedMetrics) Collect(to chan<- prometheus.Metric) {
	for _, m := range f {
		to <- m
	}
}

// containerMetrics returns the metrics of containers and of pod networks.
func (s *Server) containerMetrics(ctx context.Context) ([]prometheus.Metric, error) {
	about, pods, err := s.Runtime.PodMetrics(ctx)
	if errors.Is(err, cri.ErrNoMetrics) {
		return s.podStatsMetrics(ctx, func(string) bool { return true })
	}
	if err != nil {
		return nil, err
	}
	// The runtime reports CPU time in whole seconds, which is too coarse. Compute it from the pod statistics instead.
	out, err := s.podStatsMetrics(ctx, func(name string) bool { return name == cpuMetric })
	if err != nil {
		return nil, err
	}
	descs, keys := map[string]*prometheus.Desc{}, map[string][]string{}
	for _, d := range about {
		if d.Name != cpuMetric {
			// cAdvisor labels containers with their id as a name as well.
			keys[d.Name] = append(d.LabelKeys[:len(d.LabelKeys):len(d.LabelKeys)], "name")
			descs[d.Name] = prometheus.NewDesc(d.Name, cmp.Or(metricHelp[d.Name], d.Help), keys[d.Name], nil)
		}
	}
	add := func(list []*criapi.Metric) {
		for _, m := range list {
			desc := descs[m.Name]
			if desc == nil || m.Value == nil {
				continue
			}
			id := ""
			for i, key := range keys[m.Name] {
				if key == "id" && i < len(m.LabelValues) {
					id = m.LabelValues[i]
				}
			}
			kind := prometheus.GaugeValue
			if m.MetricType == criapi.MetricType_COUNTER {
				kind = prometheus.CounterValue
			}
			made, err := prometheus.NewConstMetric(desc, kind, float64(m.Value.Value),
				append(m.LabelValues[:len(m.LabelValues):len(m.LabelValues)], id)...)
			if err != nil {
				continue // the label values do not match the descriptor
			}
			out = append(out, prometheus.NewMetricWithTimestamp(time.Unix(0, m.Timestamp), made))
		}
	}
	for _, p := range pods {
		add(p.Metrics)
		for _, c := range p.ContainerMetrics {
			add(c.Metrics)
		}
	}
	return out, nil
}

const (
	cpuMetric        = "container_cpu_usage_seconds_total"
	workingSetMetric = "container_memory_working_set_bytes"
	memoryMetric     = "container_memory_usage_bytes"
	rssMetric        = "container_memory_rss"
	startMetric      = "container_start_time_seconds"
	receivedMetric   = "container_network_receive_bytes_total"
	sentMetric       = "container_network_transmit_bytes_total"
)

// metricHelp holds the help texts of metrics that can come from several sources. All metrics of one name must have the
// same text.
var metricHelp = map[string]string{
	cpuMetric: "CPU time that was used.", workingSetMetric: "Memory that is in use and cannot be taken " +
		"back.", memoryMetric: "Memory that is in use.",
	rssMetric: "Anonymous memory.", startMetric: "When the container was started.", receivedMetric: "Bytes that were " +
		"received.", sentMetric: "Bytes that were sent.",
}

var (
	containerLabels = []string{"namespace", "pod", "container", "image", "id", "name"}
	networkLabels   = append(containerLabels[:len(containerLabels):len(containerLabels)], "interface")
	coresDesc       = prometheus.NewDesc("machine_cpu_cores", "Processors of the machine.", nil, nil)
	memoryDesc      = prometheus.NewDesc("machine_memory_bytes", "Memory of the machine.", nil, nil)
)

// podStatsMetrics returns the requested metrics that can be computed from the runtime's pod statistics.
func (s *Server) podStatsMetrics(ctx context.Context, wanted func(name string) bool) ([]prometheus.Metric, error) {
	u, err := readPodStats(ctx, s.Runtime)
	if err != nil {
		return nil, err
	}
	containers, err := s.Runtime.ListContainers(ctx, &criapi.ContainerFilter{})
	if err != nil {
		return nil, err
	}
	images := map[string]string{}
	for _, c := range containers {
		images[c.Id] = cmp.Or(c.GetImage().GetUserSpecifiedImage(), c.GetImage().GetImage())
	}
	var out []prometheus.Metric
	add := func(name string, keys []string, kind prometheus.ValueType, v float64, at int64, labels ...string) {
		if !wanted(name) {
			return
		}
		m := prometheus.MustNewConstMetric(prometheus.NewDesc(name, metricHelp[name], keys, nil), kind, v, labels...)
		if at > 0 {
			m = prometheus.NewMetricWithTimestamp(time.Unix(0, at), m)
		}
		out = append(out, m)
	}
	u.eachContainer(func(p *criapi.PodSandboxMetadata, c *criapi.ContainerStats, created int64) {
		id := c.GetAttributes().GetId()
		labels := []string{p.GetNamespace(), p.GetName(), c.GetAttributes().GetMetadata().GetName(), images[id], id, id}
		if n := c.GetCpu().GetUsageCoreNanoSeconds(); n != nil {
			add(cpuMetric, containerLabels, prometheus.CounterValue, float64(n.Value)/1e9, c.GetCpu().GetTimestamp(),
				labels...)
		}
		for _, one := range []struct {
			name string
			n    *criapi.UInt64Value
		}{{workingSetMetric, c.GetMemory().GetWorkingSetBytes()}, {memoryMetric, c.GetMemory().GetUsageBytes()},
			{rssMetric, c.GetMemory().GetRssBytes()}} {
			if one.n != nil {
				add(one.name, containerLabels, prometheus.GaugeValue, float64(one.n.Value),
					c.GetMemory().GetTimestamp(), labels...)
			}
		}
		add(startMetric, containerLabels, prometheus.GaugeValue, float64(created)/1e9, 0, labels...)
	})
	for _, b := range u.sandboxes {
		m, network := b.GetAttributes().GetMetadata(), b.GetLinux().GetNetwork()
		if n := network.GetDefaultInterface(); n != nil {
			id := b.GetAttributes().GetId()
			labels := []string{m.GetNamespace(), m.GetName(), "", "", id, id, n.Name}
			add(receivedMetric, networkLabels, prometheus.CounterValue, float64(n.GetRxBytes().GetValue()),
				network.GetTimestamp(), labels...)
			add(sentMetric, networkLabels, prometheus.CounterValue, float64(n.GetTxBytes().GetValue()),
				network.GetTimestamp(), labels...)
		}
	}
	return out, nil
}

// machineMetrics returns the metrics of the whole machine. Its usage has the same metric names as containers, with the
// id of the root cgroup.
func (s *Server) machineMetrics() []prometheus.Metric {
	out := []prometheus.Metric{
		prometheus.MustNewConstMetric(coresDesc, prometheus.GaugeValue, float64(s.Machine.CPUs())),
	}
	root := prometheus.Labels{"id": "/"}
	if available, capacity, err := s.Machine.Memory(); err == nil {
		used := prometheus.NewDesc(workingSetMetric, metricHelp[workingSetMetric], nil, root)
		out = append(out, prometheus.MustNewConstMetric(memoryDesc, prometheus.GaugeValue, float64(capacity)),
			prometheus.MustNewConstMetric(used, prometheus.GaugeValue, float64(capacity-available)))
	}
	if nanos, err := s.Machine.CPU(); err == nil {
		used := prometheus.NewDesc(cpuMetric, metricHelp[cpuMetric], nil, root)
		out = append(out, prometheus.MustNewConstMetric(used, prometheus.CounterValue, float64(nanos)/1e9))
	}
	return out
}
