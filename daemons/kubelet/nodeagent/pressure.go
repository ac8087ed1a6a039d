package nodeagent

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/config"
	"clusterctl/daemons/kubelet/machine"
	"clusterctl/daemons/kubelet/pod"
)

// Pressures states which of the machine's resources are short.
type Pressures struct{ Memory, Disk, PIDs bool }

// pressureTTL is how long a pressure is reported after it was last measured, so that the node's conditions do not flap.
const pressureTTL = 5 * time.Minute

// Monitor compares the machine with the eviction thresholds, and records when each pressure was last measured.
type Monitor struct {
	Machine machine.Machine
	File    *config.KubeletFile

	mu                 sync.Mutex
	memory, disk, pids time.Time
}

// Report measures the pressures and returns those to report at a time.
func (m *Monitor) Report(at time.Time) Pressures { return m.Update(m.Measure(), at) }

// Update records the pressures measured at a time, and returns the pressures to report then.
func (m *Monitor) Update(now Pressures, at time.Time) Pressures {
	m.mu.Lock()
	defer m.mu.Unlock()
	lately := func(underPressure bool, last *time.Time) bool {
		if underPressure {
			*last = at
		}
		return !last.IsZero() && at.Sub(*last) < pressureTTL
	}
	return Pressures{lately(now.Memory, &m.memory), lately(now.Disk, &m.disk), lately(now.PIDs, &m.pids)}
}

// RejectingConditions returns the pressure conditions for which the node rejects a pod. Pods of DaemonSets, for
// example, tolerate the taints of these conditions, but they would be evicted next. If only memory is short, pods that
// request memory are still accepted.
func (p Pressures) RejectingConditions(of *corev1.Pod) (conditions []corev1.NodeConditionType) {
	if pod.IsCritical(of) {
		return nil
	}
	short := corev1.Taint{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule}
	tolerates := func(t corev1.Toleration) bool { return api.Tolerates(&t, &short) }
	if !p.Disk && !p.PIDs &&
		(pod.QOS(of) != corev1.PodQOSBestEffort || slices.ContainsFunc(of.Spec.Tolerations, tolerates)) {
		return nil
	}
	for _, c := range []struct {
		underPressure bool
		what          corev1.NodeConditionType
	}{{p.Memory, corev1.NodeMemoryPressure}, {p.Disk, corev1.NodeDiskPressure}, {p.PIDs, corev1.NodePIDPressure}} {
		if c.underPressure {
			conditions = append(conditions, c.what)
		}
	}
	return conditions
}

// Measure returns which resources are short now.
func (m *Monitor) Measure() Pressures {
	var p Pressures
	hard := m.File.EvictionHard
	below := func(signal string, available, capacity int64) bool {
		floor := Threshold(hard[signal], capacity)
		return floor > 0 && available < floor
	}
	if available, capacity, err := m.Machine.Memory(); err == nil {
		p.Memory = below("memory.available", available, capacity)
	}
	if d, err := m.Machine.Disk(); err == nil {
		p.Disk = below("nodefs.available", d.Available, d.Capacity) ||
			d.InodeCount > 0 &&
				below("nodefs.inodesFree", d.InodesFree,
					d.InodeCount) || below("imagefs.available", d.Available, d.Capacity)
	}
	if used, capacity, err := m.Machine.Processes(); err == nil {
		p.PIDs = below("pid.available", capacity-used, capacity)
	}
	return p
}
