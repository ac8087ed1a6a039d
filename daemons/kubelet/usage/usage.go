// Package usage measures the disk usage of the volumes of claims.
package usage

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

// Claim is the usage of one volume of a claim.
type Claim struct {
	volume, namespace, claim string
	volume.Use
}

// Mounted is a volume of a claim together with a pod that mounts it.
type Mounted struct {
	Pod    *corev1.Pod
	Volume *corev1.Volume
}

// Meter measures the usage of the volumes of claims. A call to a hanging file system may never return. Therefore
// only one goroutine at a time measures a volume, and callers wait for it only briefly.
type Meter struct {
	Measure func(*corev1.Pod, *corev1.Volume) (volume.Use, error)
	// ReportHanging is called once for a volume that does not respond.
	ReportHanging func(pods []Mounted, claim string, since time.Duration)
	// HangTimeout is how long a measurement may take before ReportHanging is called.
	HangTimeout time.Duration

	mu     sync.Mutex
	claims map[types.NamespacedName]*measuredClaim
}

// measuredClaim is the state of one volume.
type measuredClaim struct {
	use      volume.Use
	isValid  bool          // use is valid
	done     chan struct{} // closed when the running measurement ends; nil if none runs
	start    time.Time     // start of the last measurement
	reported bool          // the volume is reported as hanging
}

const (
	measureTimeout = 500 * time.Millisecond // limit for waiting on the measurements of one call
	maxMeasureAge  = time.Second            // how long a measurement is reused
)

// UsageByPod returns the usage of claim volumes by pod UID. A volume that does not respond has its last measured usage.
func (c *Meter) UsageByPod(pods []*corev1.Pod) map[types.UID][]Claim {
	claims := map[types.NamespacedName][]Mounted{}
	for _, p := range pods {
		for i := range p.Spec.Volumes {
			v := &p.Spec.Volumes[i]
			if name := volume.ClaimName(p, v); name != "" {
				key := types.NamespacedName{Namespace: p.Namespace, Name: name}
				claims[key] = append(claims[key], Mounted{p, v})
			}
		}
	}
	c.await(c.startMeasuring(claims))
	c.mu.Lock()
	defer c.mu.Unlock()
	uses := map[types.UID][]Claim{}
	for key, all := range claims {
		if m := c.claims[key]; m != nil && m.isValid {
			for _, at := range all {
				uses[at.Pod.UID] = append(uses[at.Pod.UID], Claim{at.Volume.Name, key.Namespace, key.Name, m.use})
			}
		}
	}
	return uses
}

// startMeasuring starts a measurement of each volume that needs one, and returns the channels to wait for. It removes
// volumes that no pod uses.
func (c *Meter) startMeasuring(claims map[types.NamespacedName][]Mounted) (wait []<-chan struct{}) {
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
		since := time.Since(m.start)
		switch {
		case m.done == nil && since > maxMeasureAge:
			m.start, m.done = time.Now(), make(chan struct{})
			go c.measureClaim(m, all)
			wait = append(wait, m.done)
		case m.done != nil && since < measureTimeout:
			wait = append(wait, m.done)
		case m.done != nil && since > c.HangTimeout && !m.reported:
			m.reported = true
			c.ReportHanging(all, key.Name, since)
		}
	}
	return wait
}

// measureClaim measures a volume through the first pod that has it mounted.
func (c *Meter) measureClaim(m *measuredClaim, all []Mounted) {
	var use volume.Use
	err := errors.New("no pod has it")
	for _, at := range all {
		if use, err = c.Measure(at.Pod, at.Volume); err == nil {
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
func (c *Meter) await(all []<-chan struct{}) {
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

// VolumeStats converts the usage of a pod's claim volumes for the summary.
func VolumeStats(p stats.PodReference, uses []Claim) (found []stats.VolumeStats) {
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

// Collector collects kubelet_volume_stats_*.
type Collector struct {
	Uses func() map[types.UID][]Claim
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
func (Collector) Describe(to chan<- *prometheus.Desc) {
	for _, f := range volumeStatDescs {
		to <- f.desc
	}
}

// Collect implements prometheus.Collector. A claim that several pods use is reported once.
func (m Collector) Collect(to chan<- prometheus.Metric) {
	seen := map[types.NamespacedName]bool{}
	for _, uses := range m.Uses() {
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
