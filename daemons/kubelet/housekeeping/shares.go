package housekeeping

import (
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kubelet/cgroup"
)

// Shares sets the share of the burstable pods of the machine's CPU and memory.
type Shares struct {
	Pods    Pods
	Cgroups interface {
		SetBurstableShares(shares int64) error
		Protect(guaranteed, burstable int64) error
	}
	// Protects means that the memory that pods request is protected.
	Protects bool
	Log      *slog.Logger

	mu sync.Mutex // serializes writes
	// protected is the memory of guaranteed and burstable pods in bytes, as last written.
	protected *[2]int64
}

// Update sets the CPU weight of the burstable class to the sum of the requests of its running pods. If
// memory reservation is enabled, it also protects the memory that pods request.
func (s *Shares) Update() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pods []*corev1.Pod
	for _, p := range s.Pods.Snapshot() {
		if p.Evicted == nil && !p.hasEnded() {
			pods = append(pods, p.Pod)
		}
	}
	if err := s.Cgroups.SetBurstableShares(cgroup.BurstableShares(pods)); err != nil {
		s.Log.Warn("set the CPU shares of burstable pods", "error", err)
	}
	var guaranteed, burstable int64
	if s.Protects {
		for _, p := range pods {
			minimum, low := cgroup.ProtectedMemory(p)
			guaranteed, burstable = guaranteed+minimum, burstable+low
		}
	}
	if protected := [2]int64{guaranteed, burstable}; s.protected == nil || *s.protected != protected {
		if err := s.Cgroups.Protect(guaranteed, burstable); err != nil {
			s.Log.Warn("protect the memory of pods", "error", err)
			return
		}
		s.protected = &protected
	}
}
