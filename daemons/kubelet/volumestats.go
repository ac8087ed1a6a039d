package kubelet

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"clusterctl/daemons/kubelet/volume"
)

// claimUse is how full one volume of a claim is.
type claimUse struct {
	volume, namespace, claim string
	volume.Use
}

// claimUses returns how full the volumes of claims are, by the uids of the pods that have them.
func (k *Kubelet) claimUses() map[types.UID][]claimUse {
	k.mu.Lock()
	all := make([]*worker, 0, len(k.workers))
	for _, w := range k.workers {
		all = append(all, w)
	}
	k.mu.Unlock()
	uses := map[types.UID][]claimUse{}
	for _, w := range all {
		w.mu.Lock()
		p := w.pod
		w.mu.Unlock()
		for i := range p.Spec.Volumes {
			v := &p.Spec.Volumes[i]
			name := volume.ClaimName(p, v)
			if name == "" {
				continue
			}
			if u, err := k.volumes.Use(p, v); err == nil { // else it is not mounted yet, or not any more
				uses[p.UID] = append(uses[p.UID], claimUse{v.Name, p.Namespace, name, u})
			}
		}
	}
	return uses
}

// volumeStats are a pod's volumes as the summary has them.
func volumeStats(p stats.PodReference, uses []claimUse) (found []stats.VolumeStats) {
	for _, u := range uses {
		found = append(found, stats.VolumeStats{Name: u.volume, PVCRef: &stats.PVCReference{Namespace: p.Namespace, Name: u.claim}, FsStats: stats.FsStats{
			CapacityBytes: &u.Capacity, UsedBytes: &u.Used, AvailableBytes: &u.Available, Inodes: &u.Inodes, InodesUsed: &u.InodesUsed, InodesFree: &u.InodesFree}})
	}
	return found
}

// volumeMetrics collects kubelet_volume_stats_*.
type volumeMetrics struct {
	uses func() map[types.UID][]claimUse
}

func volumeDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("kubelet_volume_stats_"+name, help, []string{"namespace", "persistentvolumeclaim"}, nil)
}

var volumeFigures = []struct {
	desc *prometheus.Desc
	of   func(volume.Use) uint64
}{
	{volumeDesc("capacity_bytes", "Capacity in bytes of the volume"), func(u volume.Use) uint64 { return u.Capacity }},
	{volumeDesc("available_bytes", "Number of available bytes in the volume"), func(u volume.Use) uint64 { return u.Available }},
	{volumeDesc("used_bytes", "Number of used bytes in the volume"), func(u volume.Use) uint64 { return u.Used }},
	{volumeDesc("inodes", "Maximum number of inodes in the volume"), func(u volume.Use) uint64 { return u.Inodes }},
	{volumeDesc("inodes_free", "Number of free inodes in the volume"), func(u volume.Use) uint64 { return u.InodesFree }},
	{volumeDesc("inodes_used", "Number of used inodes in the volume"), func(u volume.Use) uint64 { return u.InodesUsed }},
}

// Describe implements prometheus.Collector.
func (volumeMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, f := range volumeFigures {
		to <- f.desc
	}
}

// Collect implements prometheus.Collector. A claim that several pods have is one volume.
func (m volumeMetrics) Collect(to chan<- prometheus.Metric) {
	seen := map[types.NamespacedName]bool{}
	for _, uses := range m.uses() {
		for _, u := range uses {
			if at := (types.NamespacedName{Namespace: u.namespace, Name: u.claim}); !seen[at] {
				seen[at] = true
				for _, f := range volumeFigures {
					to <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, float64(f.of(u.Use)), u.namespace, u.claim)
				}
			}
		}
	}
}

// tellUnbounded says once that volumes are used without bounds.
func (k *Kubelet) tellUnbounded(name string, why error) {
	k.unboundedOnce.Do(func() {
		k.env.Log.Warn("volumes are not held to their size", "first", name, "reason", why)
		ref := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: k.name, UID: types.UID(k.name)}
		k.events.Eventf(ref, corev1.EventTypeWarning, "VolumesNotBounded", "volumes of this node, %s the first, are not held to their size: %v", name, why)
	})
}
