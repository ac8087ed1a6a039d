package kubelet

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"clusterctl/daemons/kubelet/volume"
)

// claimUsage is the usage of one volume of a claim.
type claimUsage struct {
	volume, namespace, claim string
	volume.Use
}

// mountedClaim is a volume of a claim together with a pod that mounts it.
type mountedClaim struct {
	pod    *corev1.Pod
	volume *corev1.Volume
}

// claimMeter measures the usage of the volumes of claims. A call to a hanging file system may never return. Therefore
// only one goroutine at a time measures a volume, and callers wait for it only briefly.
type claimMeter struct {
	measure func(*corev1.Pod, *corev1.Volume) (volume.Use, error)
	// reportHanging is called once for a volume that does not respond.
	reportHanging func(pods []mountedClaim, claim string, since time.Duration)
	// hangTimeout is how long a measurement may take before hangs is called.
	hangTimeout time.Duration

	mu     sync.Mutex
	claims map[types.NamespacedName]*measuredClaim
}

// measuredClaim is the state of one volume.
type measuredClaim struct {
	use      volume.Use
	isValid  bool          // use is valid
	done     chan struct{} // closed when the running measurement ends; nil if none runs
	began    time.Time     // start of the last measurement
	reported bool          // the volume is reported as hanging
}

const (
	measureTimeout = 500 * time.Millisecond // limit for waiting on the measurements of one call
	maxMeasureAge  = time.Second            // how long a measurement is reused
)

// usageByPod returns the usage of claim volumes by pod UID. A volume that does not respond has its last measured usage.
func (c *claimMeter) usageByPod(pods []*corev1.Pod) map[types.UID][]claimUsage {
	claims := map[types.NamespacedName][]mountedClaim{}
	for _, p := range pods {
		for i := range p.Spec.Volumes {
			v := &p.Spec.Volumes[i]
			if name := volume.ClaimName(p, v); name != "" {
				key := types.NamespacedName{Namespace: p.Namespace, Name: name}
				claims[key] = append(claims[key], mountedClaim{p, v})
			}
		}
	}
	c.await(c.startMeasuring(claims))
	c.mu.Lock()
	defer c.mu.Unlock()
	uses := map[types.UID][]claimUsage{}
	for key, all := range claims {
		if m := c.claims[key]; m != nil && m.isValid {
			for _, at := range all {
				uses[at.pod.UID] = append(uses[at.pod.UID], claimUsage{at.volume.Name, key.Namespace, key.Name, m.use})
			}
		}
	}
	return uses
}

// startMeasuring starts a measurement of each volume that needs one, and returns the channels to wait for. It removes
// volumes that no pod uses.
func (c *claimMeter) startMeasuring(claims map[types.NamespacedName][]mountedClaim) (wait []<-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, m := range c.claims {
		if claims[key] == nil && m.done == nil {
			delete(c.claims, key)
		}
	}
	for key, all := range claims {
		m := c.claims[key]
		if m == nil {
			if c.claims == nil {
				c.claims = map[types.NamespacedName]*measuredClaim{}
			}
			m = &measuredClaim{}
			c.claims[key] = m
		}
		since := time.Since(m.began)
		switch {
		case m.done == nil && since > maxMeasureAge:
			m.began, m.done = time.Now(), make(chan struct{})
			go c.measureClaim(m, all)
			wait = append(wait, m.done)
		case m.done != nil && since < measureTimeout:
			wait = append(wait, m.done)
		case m.done != nil && since > c.hangTimeout && !m.reported:
			m.reported = true
			c.reportHanging(all, key.Name, since)
		}
	}
	return wait
}

// measureClaim measures a volume through the first pod that has it mounted.
func (c *claimMeter) measureClaim(m *measuredClaim, all []mountedClaim) {
	var use volume.Use
	err := errors.New("no pod has it")
	for _, at := range all {
		if use, err = c.measure(at.pod, at.volume); err == nil {
			break // otherwise it is not mounted yet, or no longer
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.use, m.isValid, m.reported = use, err == nil, false
	close(m.done)
	m.done = nil
}

// await waits until the measurements end, but at most measureTimeout in total.
func (c *claimMeter) await(all []<-chan struct{}) {
	timer := time.NewTimer(measureTimeout)
	defer timer.Stop()
	for _, done := range all {
		select {
		case <-done:
		case <-timer.C:
			return
		}
	}
}

// claimUsageByPod returns the usage of claim volumes by pod UID.
func (k *Kubelet) claimUsageByPod() map[types.UID][]claimUsage {
	var pods []*corev1.Pod
	for _, w := range k.allWorkers() {
		w.mu.Lock()
		pods = append(pods, w.pod)
		w.mu.Unlock()
	}
	return k.claimUsage.usageByPod(pods)
}

// recordHangingVolume reports a volume that does not respond by events on the pods that mount it.
func (k *Kubelet) recordHangingVolume(all []mountedClaim, claim string, since time.Duration) {
	k.env.Log.Warn("a volume does not respond", "namespace", all[0].pod.Namespace, "claim", claim, "since",
		since.Round(time.Second))
	for _, at := range all {
		k.recordEvent(at.pod, corev1.EventTypeWarning, "VolumeNotResponding",
			"volume %q of claim %q has not responded for %s: its disk or server hangs",
			at.volume.Name, claim, since.Round(time.Second))
	}
}

// volumeStats converts the usage of a pod's claim volumes for the summary.
func volumeStats(p stats.PodReference, uses []claimUsage) (found []stats.VolumeStats) {
	for _, u := range uses {
		found = append(
			found,
			stats.VolumeStats{
				Name:   u.volume,
				PVCRef: &stats.PVCReference{Namespace: p.Namespace, Name: u.claim},
				FsStats: stats.FsStats{
					CapacityBytes: &u.Capacity, UsedBytes: &u.Used, AvailableBytes: &u.Available, Inodes: &u.Inodes,
					InodesUsed: &u.InodesUsed, InodesFree: &u.InodesFree},
			},
		)
	}
	return found
}

// volumeMetrics collects kubelet_volume_stats_*.
type volumeMetrics struct {
	uses func() map[types.UID][]claimUsage
}

func volumeDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("kubelet_volume_stats_"+name, help, []string{"namespace", "persistentvolumeclaim"}, nil)
}

var volumeStatDescs = []struct {
	desc *prometheus.Desc
	of   func(volume.Use) uint64
}{
	{volumeDesc("capacity_bytes", "Capacity in bytes of the volume"), func(u volume.Use) uint64 { return u.Capacity }},
	{
		volumeDesc("available_bytes", "Number of available bytes in the volume"),
		func(u volume.Use) uint64 { return u.Available },
	},
	{volumeDesc("used_bytes", "Number of used bytes in the volume"), func(u volume.Use) uint64 { return u.Used }},
	{volumeDesc("inodes", "Maximum number of inodes in the volume"), func(u volume.Use) uint64 { return u.Inodes }},
	{
		volumeDesc("inodes_free", "Number of free inodes in the volume"),
		func(u volume.Use) uint64 { return u.InodesFree },
	},
	{
		volumeDesc("inodes_used", "Number of used inodes in the volume"),
		func(u volume.Use) uint64 { return u.InodesUsed },
	},
}

// Describe implements prometheus.Collector.
func (volumeMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, f := range volumeStatDescs {
		to <- f.desc
	}
}

// Collect implements prometheus.Collector. A claim that several pods use is reported once.
func (m volumeMetrics) Collect(to chan<- prometheus.Metric) {
	seen := map[types.NamespacedName]bool{}
	for _, uses := range m.uses() {
		for _, u := range uses {
			if at := (types.NamespacedName{Namespace: u.namespace, Name: u.claim}); !seen[at] {
				seen[at] = true
				for _, f := range volumeStatDescs {
					to <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, float64(f.of(u.Use)),
						u.namespace, u.claim)
				}
			}
		}
	}
}

// recordUnbounded reports once that volumes are not limited to their size.
func (k *Kubelet) recordUnbounded(name string, why error) {
	k.unboundedOnce.Do(func() {
		k.env.Log.Warn("volumes are not held to their size", "first", name, "reason", why)
		ref := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: k.name, UID: types.UID(k.name)}
		k.events.Eventf(
			ref,
			corev1.EventTypeWarning,
			"VolumesNotBounded",
			"volumes of this node, %s the first, are not held to their size: %v",
			name,
			why,
		)
	})
}
