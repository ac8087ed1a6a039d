package kubelet

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kubelet/cgroup"
)

// Cgroups manages the control groups of pods. *cgroup.Manager is the real implementation.
type Cgroups interface {
	Setup(all cgroup.Limits) error
	SetBurstableShares(shares int64) error
	Parent(p *corev1.Pod) string
	Make(path string, l cgroup.Limits) error
	Remove(path string) error
	Pods() (map[string]string, error)
	Protect(guaranteed, burstable int64) error
	IsUnified() bool
}

// countedCgroups measures the duration of cgroup operations.
type countedCgroups struct {
	Cgroups
	seconds *prometheus.HistogramVec
}

func (c countedCgroups) Setup(all cgroup.Limits) error {
	defer c.recordCall("create", time.Now())
	return c.Cgroups.Setup(all)
}

func (c countedCgroups) Make(path string, l cgroup.Limits) error {
	defer c.recordCall("update", time.Now())
	return c.Cgroups.Make(path, l)
}

func (c countedCgroups) Remove(path string) error {
	defer c.recordCall("destroy", time.Now())
	return c.Cgroups.Remove(path)
}

func (c countedCgroups) recordCall(operation string, start time.Time) {
	c.seconds.WithLabelValues(operation).Observe(time.Since(start).Seconds())
}
