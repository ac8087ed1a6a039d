package kubelet

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"clusterctl/daemons/kubelet/pod"
)

// pressed says which of the machine's resources are short.
type pressed struct{ memory, disk, pids bool }

// linger is how long pressure is reported after it was last seen, so that a node
// does not flap.
const linger = 5 * time.Minute

// shortages remembers when each pressure was last seen.
type shortages struct {
	mu                 sync.Mutex
	memory, disk, pids time.Time
}

// pressure measures the machine against the eviction thresholds.
func (k *Kubelet) pressure() pressed {
	now := k.short()
	s := &k.shortages
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Now()
	seen := func(is bool, last *time.Time) bool {
		if is {
			*last = at
		}
		return !last.IsZero() && at.Sub(*last) < linger
	}
	return pressed{seen(now.memory, &s.memory), seen(now.disk, &s.disk), seen(now.pids, &s.pids)}
}

// short measures what is short at this moment.
func (k *Kubelet) short() pressed {
	var p pressed
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
			d.InodeCount > 0 && below("nodefs.inodesFree", d.InodesFree, d.InodeCount) || below("imagefs.available", d.Available, d.Capacity)
	}
	if used, capacity, err := k.machine.Processes(); err == nil {
		p.pids = below("pid.available", capacity-used, capacity)
	}
	return p
}

// refuse returns why a pod that is new here cannot run here, or nil. Pods that
// the scheduler placed fit; this is for those that were placed past it, or raced.
// The caller holds k.mu.
func (k *Kubelet) refuse(p *corev1.Pod) *pod.End {
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded || len(p.Status.ContainerStatuses) > 0 || k.node == nil {
		return nil
	}
	name, message := k.lacks(p)
	if name == "" {
		return nil
	}
	return &pod.End{Phase: corev1.PodFailed, Reason: "OutOf" + string(name), Message: "Pod was rejected: " + message, Rejected: true}
}

// lacks returns what the node has too little of for a pod beside the others, and how much, or nothing when there is room for it.
// The caller holds k.mu.
func (k *Kubelet) lacks(p *corev1.Pod) (what corev1.ResourceName, message string) {
	room := k.node.Status.Allocatable
	if len(room) == 0 {
		return "", ""
	}
	used := corev1.ResourceList{}
	pods := int64(0)
	for _, w := range k.workers {
		w.mu.Lock()
		other := w.pod
		// What the API no longer has counts no longer, though it may still be ending here: the
		// scheduler gave its place away when it went.
		over := w.removed || w.evicted != nil || other.Status.Phase == corev1.PodFailed || other.Status.Phase == corev1.PodSucceeded
		w.mu.Unlock()
		if over || other.UID == p.UID {
			continue
		}
		pods++
		for name, q := range resource.PodRequests(other, resource.PodResourcesOptions{}) {
			sum := used[name]
			sum.Add(q)
			used[name] = sum
		}
	}
	if limit := room.Pods().Value(); limit > 0 && pods >= limit {
		return corev1.ResourcePods, shortage(corev1.ResourcePods, 1, pods, limit)
	}
	for name, q := range resource.PodRequests(p, resource.PodResourcesOptions{}) {
		have, ok := room[name]
		// An extended resource that is not known here is known to whoever put it into the node's
		// status, a moment ago perhaps; the scheduler goes by that.
		if q.IsZero() || !ok && (name == corev1.ResourceEphemeralStorage || extended(name)) {
			continue
		}
		sum := used[name]
		was := sum.DeepCopy()
		sum.Add(q)
		if sum.Cmp(have) > 0 {
			if name == corev1.ResourceCPU {
				return name, shortage(name, q.MilliValue(), was.MilliValue(), have.MilliValue())
			}
			return name, shortage(name, q.Value(), was.Value(), have.Value())
		}
	}
	return "", ""
}

func shortage(name corev1.ResourceName, requested, used, capacity int64) string {
	return fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, requested, used, capacity)
}
