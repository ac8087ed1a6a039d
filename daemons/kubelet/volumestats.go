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

// claimUse is the usage of one volume of a claim.
type claimUse struct {
	volume, namespace, claim string
	volume.Use
}

// mountedClaim is a volume of a claim together with a pod that mounts it.
type mountedClaim struct {
	pod    *corev1.Pod
	volume *corev1.Volume
}

// claimUses measures the usage of the volumes of claims. A call to a hanging file system may never return. Therefore
// only one goroutine at a time measures a volume, and callers wait for it only briefly.
type claimUses struct {
	measure func(*corev1.Pod, *corev1.Volume) (volume.Use, error)
	// hangs is called once for a volume that does not respond.
	hangs func(pods []mountedClaim, claim string, since time.Duration)
	// hang is how long a measurement may take before hangs is called.
	hang time.Duration

	mu    sync.Mutex
	known map[types.NamespacedName]*measuredClaim
}

// measuredClaim is the state of one volume.
type measuredClaim struct {
	use   volume.Use
	ok    bool          // use is valid
	done  chan struct{} // closed when the running measurement ends; nil if none runs
	began time.Time     // start of the last measurement
	told  bool          // the volume is reported as hanging
}

const (
	measureWait = 500 * time.Millisecond // limit for waiting on the measurements of one call
	measureAge  = time.Second            // how long a measurement is reused
)

// of returns the usage of claim volumes by pod UID. A volume that does not respond has its last measured usage.
func (c *claimUses) of(pods []*corev1.Pod) map[types.UID][]claimUse {
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
	c.await(c.begin(claims))
	c.mu.Lock()
	defer c.mu.Unlock()
	uses := map[types.UID][]claimUse{}
	for key, all := range claims {
		if m := c.known[key]; m != nil && m.ok {
			for _, at := range all {
				uses[at.pod.UID] = append(uses[at.pod.UID], claimUse{at.volume.Name, key.Namespace, key.Name, m.use})
			}
		}
	}
	return uses
}

// begin starts a measurement of each volume that needs one, and returns the channels to wait for. It removes volumes
// that no pod uses.
func (c *claimUses) begin(claims map[types.NamespacedName][]mountedClaim) (wait []<-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, m := range c.known {
		if claims[key] == nil && m.done == nil {
			delete(c.known, key)
		}
	}
	for key, all := range claims {
		m := c.known[key]
		if m == nil {
			if c.known == nil {
				c.known = map[types.NamespacedName]*measuredClaim{}
			}
			m = &measuredClaim{}
			c.known[key] = m
		}
		since := time.Since(m.began)
		switch {
		case m.done == nil && since > measureAge:
			m.began, m.done = time.Now(), make(chan struct{})
			go c.ask(m, all)
			wait = append(wait, m.done)
		case m.done != nil && since < measureWait:
			wait = append(wait, m.done)
		case m.done != nil && since > c.hang && !m.told:
			m.told = true
			c.hangs(all, key.Name, since)
		}
	}
	return wait
}

// ask measures a volume through the first pod that has it mounted.
func (c *claimUses) ask(m *measuredClaim, all []mountedClaim) {
	var use volume.Use
	err := errors.New("no pod has it")
	for _, at := range all {
		if use, err = c.measure(at.pod, at.volume); err == nil {
			break // otherwise it is not mounted yet, or no longer
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.use, m.ok, m.told = use, err == nil, false
	close(m.done)
	m.done = nil
}

// await waits until the measurements end, but at most measureWait in total.
func (c *claimUses) await(all []<-chan struct{}) {
	timer := time.NewTimer(measureWait)
	defer timer.Stop()
	for _, done := range all {
		select {
		case <-done:
		case <-timer.C:
			return
		}
	}
}

// claimUses returns the usage of claim volumes by pod UID.
func (k *Kubelet) claimUses() map[types.UID][]claimUse {
	var pods []*corev1.Pod
	for _, w := range k.all() {
		w.mu.Lock()
		pods = append(pods, w.pod)
		w.mu.Unlock()
	}
	return k.uses.of(pods)
}

// tellHanging reports a volume that does not respond by events on the pods that mount it.
func (k *Kubelet) tellHanging(all []mountedClaim, claim string, since time.Duration) {
	k.env.Log.Warn("a volume does not respond", "namespace", all[0].pod.Namespace, "claim", claim, "since",
		since.Round(time.Second))
	for _, at := range all {
		k.event(at.pod, corev1.EventTypeWarning, "VolumeNotResponding",
			"volume %q of claim %q has not responded for %s: its disk or server hangs",
			at.volume.Name, claim, since.Round(time.Second))
	}
}

// volumeStats converts the usage of a pod's claim volumes for the summary.
func volumeStats(p stats.PodReference, uses []claimUse) (found []stats.VolumeStats) {
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
	for _, f := range volumeFigures {
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
				for _, f := range volumeFigures {
					to <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, float64(f.of(u.Use)),
						u.namespace, u.claim)
				}
			}
		}
	}
}

// tellUnbounded reports once that volumes are not limited to their size.
func (k *Kubelet) tellUnbounded(name string, why error) {
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
