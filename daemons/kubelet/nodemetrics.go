package kubelet

import (
	"crypto/tls"
	"crypto/x509"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kubelet/pod"
	"clusterctl/daemons/kubelet/volume"
)

// nodeMetrics collects metrics from the kubelet's state at the time of the scrape, under upstream's names.
type nodeMetrics struct{ k *Kubelet }

var (
	nodeNameDesc   = prometheus.NewDesc("kubelet_node_name", "1, with the name of the node.", []string{"node"}, nil)
	podsDesc       = prometheus.NewDesc("kubelet_running_pods", "Pods with a sandbox that runs.", nil, nil)
	containersDesc = prometheus.NewDesc(
		"kubelet_running_containers",
		"Containers by their state.",
		[]string{"container_state"},
		nil,
	)
	volumesDesc = prometheus.NewDesc(
		"volume_manager_total_volumes",
		"Volumes that pods want and have, by their plugin.",
		[]string{"plugin_name", "state"},
		nil,
	)
	configDesc = prometheus.NewDesc(
		"kubelet_node_config_error",
		"1 when the configuration of the node is not in use because of an error.",
		nil,
		nil,
	)
	clientTTLDesc = prometheus.NewDesc(
		"kubelet_certificate_manager_client_ttl_seconds",
		"How long the client certificate is still valid; +Inf without one.",
		nil,
		nil,
	)
	serverTTLDesc = prometheus.NewDesc(
		"kubelet_certificate_manager_server_ttl_seconds",
		"How long the serving certificate is still valid; +Inf without one.",
		nil,
		nil,
	)
)

// Describe implements prometheus.Collector.
func (nodeMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{nodeNameDesc, podsDesc, containersDesc, volumesDesc, configDesc, clientTTLDesc,
		serverTTLDesc} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (n nodeMetrics) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	k := n.k
	running, states := 0, map[pod.State]int{pod.Created: 0, pod.Running: 0, pod.Exited: 0, pod.Unknown: 0}
	volumes := map[[2]string]int{}
	for _, w := range k.allWorkers() {
		w.mu.Lock()
		p, sandboxes, containers, ready := w.pod, w.sandboxes, w.containers, false
		w.mu.Unlock()
		for _, s := range sandboxes {
			ready = ready || s.Ready
		}
		if ready {
			running++
		}
		for _, c := range containers {
			states[c.State]++
		}
		for i := range p.Spec.Volumes {
			plugin := volumePlugin(p, &p.Spec.Volumes[i])
			volumes[[2]string{plugin, "desired_state_of_world"}]++
			if ready {
				volumes[[2]string{plugin, "actual_state_of_world"}]++
			}
		}
	}
	gauge(nodeNameDesc, 1, k.name)
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
	if _, end, err := certLifetime(k.cfg.Kubeconfig); err == nil {
		ttl = time.Until(end).Seconds()
	}
	gauge(clientTTLDesc, ttl)
	gauge(serverTTLDesc, k.metrics.serving.remainingSeconds())
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

// servingCertificate gives access to the certificate of the kubelet's server once it serves.
type servingCertificate struct {
	get atomic.Pointer[func(*tls.ClientHelloInfo) (*tls.Certificate, error)]
}

// remainingSeconds returns the remaining lifetime of the certificate in seconds, or +Inf if there is none.
func (c *servingCertificate) remainingSeconds() float64 {
	get := c.get.Load()
	if get == nil {
		return math.Inf(1)
	}
	pair, err := (*get)(nil)
	if err != nil || pair == nil || len(pair.Certificate) == 0 {
		return math.Inf(1)
	}
	leaf := pair.Leaf
	if leaf == nil {
		if leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return math.Inf(1)
		}
	}
	return time.Until(leaf.NotAfter).Seconds()
}
