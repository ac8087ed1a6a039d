package binder

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"

	"clusterctl/daemons/api/storage"
)

// volumeCount collects the numbers of volumes and claims at each scrape.
type volumeCount struct {
	volumes corelisters.PersistentVolumeLister
	claims  corelisters.PersistentVolumeClaimLister
}

var (
	claimLabels  = []string{"namespace", "storage_class", "volume_attributes_class"}
	totalVolumes = prometheus.NewDesc("pv_collector_total_pv_count", "Volumes.", []string{"plugin_name", "volume_mode"},
		nil)
	boundVolumes = prometheus.NewDesc("pv_collector_bound_pv_count", "Volumes that are bound.",
		[]string{"storage_class"}, nil)
	freeVolumes = prometheus.NewDesc("pv_collector_unbound_pv_count", "Volumes that are not bound.",
		[]string{"storage_class"}, nil)
	boundClaims   = prometheus.NewDesc("pv_collector_bound_pvc_count", "Claims that are bound.", claimLabels, nil)
	waitingClaims = prometheus.NewDesc("pv_collector_unbound_pvc_count", "Claims that are not bound.", claimLabels, nil)
)

// Describe implements prometheus.Collector.
func (volumeCount) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{totalVolumes, boundVolumes, freeVolumes, boundClaims, waitingClaims} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c volumeCount) Collect(to chan<- prometheus.Metric) {
	type series struct {
		of     *prometheus.Desc
		labels [3]string
	}
	counts := map[series]int{}
	volumes, err := c.volumes.List(labels.Everything())
	if err != nil {
		return
	}
	for _, v := range volumes {
		of := freeVolumes
		if v.Status.Phase == corev1.VolumeBound {
			of = boundVolumes
		}
		counts[series{of, [3]string{v.Spec.StorageClassName}}]++
		counts[series{totalVolumes, [3]string{pluginOf(v), modeOf(v)}}]++
	}
	claims, err := c.claims.List(labels.Everything())
	if err != nil {
		return
	}
	for _, claim := range claims {
		of := waitingClaims
		if claim.Status.Phase == corev1.ClaimBound {
			of = boundClaims
		}
		counts[series{of, [3]string{claim.Namespace, storage.GetPersistentVolumeClaimClass(claim),
			attributesClass(claim.Spec.VolumeAttributesClassName)}}]++
	}
	many := map[*prometheus.Desc]int{totalVolumes: 2, boundVolumes: 1, freeVolumes: 1, boundClaims: 3, waitingClaims: 3}
	for s, n := range counts {
		to <- prometheus.MustNewConstMetric(s.of, prometheus.GaugeValue, float64(n), s.labels[:many[s.of]]...)
	}
}

func modeOf(v *corev1.PersistentVolume) string {
	if v.Spec.VolumeMode == nil {
		return string(corev1.PersistentVolumeFilesystem)
	}
	return string(*v.Spec.VolumeMode)
}

// pluginOf returns the name of the volume plugin that mounts a volume.
func pluginOf(v *corev1.PersistentVolume) string {
	switch {
	case v.Spec.HostPath != nil:
		return "kubernetes.io/host-path"
	case v.Spec.Local != nil:
		return "kubernetes.io/local-volume"
	case v.Spec.NFS != nil:
		return "kubernetes.io/nfs"
	case v.Spec.ISCSI != nil:
		return "kubernetes.io/iscsi"
	case v.Spec.FC != nil:
		return "kubernetes.io/fc"
	case v.Spec.CSI != nil:
		return "kubernetes.io/csi:" + v.Spec.CSI.Driver
	}
	return "N/A"
}
