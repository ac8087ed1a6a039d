package kubelet

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/kubelet/pod"
)

// pressures states which of the machine's resources are short.
type pressures struct{ memory, disk, pids bool }

// pressureTTL is how long a pressure is reported after it was last measured, so that the node's conditions do not flap.
const pressureTTL = 5 * time.Minute

// pressureTimes records when each pressure was last measured.
type pressureTimes struct {
	mu                 sync.Mutex
	memory, disk, pids time.Time
}

// reportedPressures compares the machine with the eviction thresholds and returns the pressures to report.
func (k *Kubelet) reportedPressures() pressures {
	return k.shortages.update(k.measurePressures(), time.Now())
}

// update records the pressures measured at a time, and returns the pressures to report then.
func (s *pressureTimes) update(now pressures, at time.Time) pressures {
	s.mu.Lock()
	defer s.mu.Unlock()
	lately := func(is bool, last *time.Time) bool {
		if is {
			*last = at
		}
		return !last.IsZero() && at.Sub(*last) < pressureTTL
	}
	return pressures{lately(now.memory, &s.memory), lately(now.disk, &s.disk), lately(now.pids, &s.pids)}
}

// rejectingConditions returns the pressure conditions for which the node rejects a pod. Pods of DaemonSets, for
// example, tolerate the taints of these conditions, but they would be evicted next. If only memory is short, pods that
// request memory are still accepted.
func (p pressures) rejectingConditions(of *corev1.Pod) (conditions []corev1.NodeConditionType) {
	if pod.IsCritical(of) {
		return nil
	}
	short := corev1.Taint{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule}
	tolerates := func(t corev1.Toleration) bool { return api.Tolerates(&t, &short) }
	if !p.disk && !p.pids &&
		(pod.QOS(of) != corev1.PodQOSBestEffort || slices.ContainsFunc(of.Spec.Tolerations, tolerates)) {
		return nil
	}
	for _, c := range []struct {
		is   bool
		what corev1.NodeConditionType
	}{{p.memory, corev1.NodeMemoryPressure}, {p.disk, corev1.NodeDiskPressure}, {p.pids, corev1.NodePIDPressure}} {
		if c.is {
			conditions = append(conditions, c.what)
		}
	}
	return conditions
}

// measurePressures returns which resources are short now.
func (k *Kubelet) measurePressures() pressures {
	var p pressures
	hard := k.file.EvictionHard
	below := func(signal string, available, capacity int64) bool {
		floor := threshold(hard[signal], capacity)
		return floor > 0 && available < floor
	}
	if available, capacity, err := k.machine.Memory(); err == nil {
		p.memory = below("memory.available", available, capacity)
	}
	if d, err := k.machine.Disk(); err == nil {
		p.disk = below("nodefs.available", d.Available, d.Capacity) ||
			d.InodeCount > 0 &&
				below(
					"nodefs.inodesFree",
					d.InodesFree,
					d.InodeCount,
				) || below("imagefs.available", d.Available, d.Capacity)
	}
	if used, capacity, err := k.machine.Processes(); err == nil {
		p.pids = below("pid.available", capacity-used, capacity)
	}
	return p
}
