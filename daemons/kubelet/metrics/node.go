package metrics

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kubelet/pod"
)

// PodState is a pod as the runtime has it.
type PodState struct {
	Pod        *corev1.Pod
	Ready      bool // a sandbox of it is ready
	Containers []pod.State
}

// Node collects metrics from the kubelet's state at the time of the scrape, under upstream's names.
type Node struct {
	Node    string
	Expiry  func() (time.Time, error) // of the client certificate
	Pods    func() []PodState
	Serving *ServingCertificate
}

var (
	nodeNameDesc   = prometheus.NewDesc("kubelet_node_name", "1, with the name of the node.", []string{"node"}, nil)
	podsDesc       = prometheus.NewDesc("kubelet_running_pods", "Pods with a sandbox that runs.", nil, nil)
	containersDesc = prometheus.NewDesc("kubelet_running_containers", "Containers by their state.",
		[]string{"container_state"}, nil)
	volumesDesc = prometheus.NewDesc("volume_manager_total_volumes",
		"Volumes that pods want and have, by their plugin.", []string{"plugin_name", "state"}, nil)
	configDesc = prometheus.NewDesc("kubelet_node_config_error",
		"1 when the configuration of the node is not in use because of an error.", nil, nil)
	clientTTLDesc = prometheus.NewDesc("kubelet_certificate_manager_client_ttl_seconds",
		"How long the client certificate is still valid; +Inf without one.", nil, nil)
	serverTTLDesc = prometheus.NewDesc("kubelet_certificate_manager_server_ttl_seconds",
		"How long the serving certificate is still valid; +Inf without one.", nil, nil)
)

// Describe implements prometheus.Collector.
func (Node) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{nodeNameDesc, podsDesc, containersDesc, volumesDesc, configDesc, clientTTLDesc,
		serverTTLDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (n Node) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	running, states := 0, map[pod.State]int{pod.Created: 0, pod.Running: 0, pod.Exited: 0, pod.Unknown: 0}
	volumes := map[[2]string]int{}
	for _, p := range n.Pods() {
		if p.Ready {
			running++
		}
		for _, state := range p.Containers {
			states[state]++
		}
		for i := range p.Pod.Spec.Volumes {
			plugin := volumePlugin(p.Pod, &p.Pod.Spec.Volumes[i])
			volumes[[2]string{plugin, "desired_state_of_world"}]++
			if p.Ready {
				volumes[[2]string{plugin, "actual_state_of_world"}]++
			}
		}
	}
	gauge(nodeNameDesc, 1, n.Node)
	gauge(podsDesc, float64(running))
	for state, name := range map[pod.State]string{pod.Created: "created", pod.Running: "running", pod.Exited: "exited",
		pod.Unknown: "unknown"} {
		gauge(containersDesc, float64(states[state]), name)
	}
	for labels, n := range volumes {
		gauge(volumesDesc, float64(n), labels[0], labels[1])
	}
	gauge(configDesc, 0) // a kubelet with an invalid configuration does not start
	ttl := math.Inf(1)
	if end, err := n.Expiry(); err == nil {
		ttl = time.Until(end).Seconds()
	}
	gauge(clientTTLDesc, ttl)
	gauge(serverTTLDesc, n.Serving.remainingSeconds())
}
