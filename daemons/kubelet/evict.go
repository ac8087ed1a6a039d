package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"

	"clusterctl/daemons/kubelet/nodeagent"
	"clusterctl/daemons/kubelet/pod"
)

// evict ends at most one pod when the machine is short of memory, disk or process IDs. It chooses the pod in upstream's
// order: pods above their requests first, then the lowest priority, then the largest excess over the request.
func (k *Kubelet) evict(ctx context.Context) {
	now := k.pressures.Measure()
	signal, what := "", corev1.ResourceMemory
	if k.isReclaiming(now, time.Now()) {
		return // the resources that the last evicted pod releases may be enough
	}
	switch {
	case now.Memory:
		signal = "memory.available"
	case now.Disk:
		signal, what = "nodefs.available", corev1.ResourceEphemeralStorage
		freed := k.discardEnded(ctx)
		freed = k.collectImages(ctx, nil) || freed
		if !k.pressures.Measure().Disk {
			return
		}
		if freed { // the runtime frees the space later, as it does for an evicted pod
			if d, err := k.machine.Disk(); err == nil && k.reclaiming.needsWait(true, d.Available, time.Now()) {
				return
			}
		}
	case now.PIDs:
		signal, what = "pid.available", processIDs
	default:
		return
	}
	// Without the usage of the pods no pod can be chosen. The next run tries again.
	usage, err := k.usageByPod(ctx)
	if err != nil {
		k.env.Log.Warn("no pod is evicted: what the pods use is not known", "signal", signal, "error", err)
		return
	}
	layers, err := k.layerSizes(ctx)
	if err != nil {
		k.env.Log.Warn("no pod is evicted: what the pods store is not known", "signal", signal, "error", err)
		return
	}
	var ranked []evictionCandidate
	for _, w := range k.allWorkers() {
		w.mu.Lock()
		p, over := w.pod, w.evicted != nil || w.removed
		w.mu.Unlock()
		if over || pod.IsCritical(p) || p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed ||
			p.Status.Phase == corev1.PodSucceeded {
			continue
		}
		used := usage[p.UID].memory
		switch what {
		case corev1.ResourceEphemeralStorage:
			used = k.podDiskUsage(p, layers[p.UID]).total()
		case processIDs:
			used = usage[p.UID].processes
		}
		ranked = append(ranked, newCandidate(w, p, what, used))
	}
	if len(ranked) == 0 {
		k.env.Log.Warn("the machine is short, and no pod is left that may be evicted", "signal", signal)
		return
	}
	v := slices.MinFunc(ranked, evictionOrder)
	message := fmt.Sprintf("The node was low on resource: %s. ", what)
	k.env.Log.Warn("evicting a pod", "pod", podName(v.pod), "signal", signal)
	k.metrics.Evictions.WithLabelValues(signal).Inc()
	k.recordEvent(v.pod, corev1.EventTypeWarning, "Evicted", "%s", message)
	v.worker.updateInbox(func() {
		v.worker.evicted = &pod.End{Phase: corev1.PodFailed, Reason: "Evicted", Message: message, IsNodePressure: true}
		v.worker.evictedAt = time.Now()
	})
}

const (
	// releaseTimeout is how long the next eviction waits while the last evicted pod still holds resources of the
	// machine.
	releaseTimeout = 30 * time.Second
	// freeTimeout is how long to wait for free disk space to grow after containers were removed, because the runtime
	// deletes their data afterwards. maxFreeTimeout limits the wait while free space is growing.
	freeTimeout, maxFreeTimeout = 30 * time.Second, 5 * time.Minute
	// discardTimeout is how long to wait for the containers of ended pods to be removed.
	discardTimeout = 5 * time.Second
)

// reclaimState tracks how free disk space grows after the containers of an evicted pod were removed.
type reclaimState struct {
	began, grewAt time.Time // when the containers were removed, and when free space last grew
	maxFree       int64     // largest free space seen, in bytes
}

// isReclaiming reports whether a recently evicted pod is still releasing resources that the machine is short of.
func (k *Kubelet) isReclaiming(short nodeagent.Pressures, now time.Time) bool {
	gone := false
	for _, w := range k.allWorkers() {
		w.mu.Lock()
		evicted, at, left := w.evicted, w.evictedAt, !w.released || len(w.containers) > 0
		first := evicted != nil && evicted.IsNodePressure && !left && !w.freed
		w.freed = w.freed || first
		w.mu.Unlock()
		if left && evicted != nil && evicted.IsNodePressure && now.Sub(at) < releaseTimeout {
			return true
		}
		gone = gone || first
	}
	if !short.Disk {
		return false
	}
	d, err := k.machine.Disk()
	if err != nil {
		return false
	}
	waits := k.reclaiming.needsWait(gone, d.Available, now)
	return waits && !short.Memory // if memory is short, the kernel would kill processes during the wait
}

// needsWait records the free space (room) in bytes, and whether a pod's containers have just been removed (gone). It
// reports whether free space may still grow.
func (r *reclaimState) needsWait(gone bool, room int64, now time.Time) bool {
	switch {
	case gone:
		*r = reclaimState{began: now, grewAt: now, maxFree: room}
	case room > r.maxFree:
		r.grewAt, r.maxFree = now, room
	}
	return !r.began.IsZero() && now.Sub(r.grewAt) < freeTimeout && now.Sub(r.began) < maxFreeTimeout
}

// hasContainersLeft reports whether a pod has ended and still has containers.
func (w *worker) hasContainersLeft() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	over := w.pod.Status.Phase == corev1.PodFailed || w.pod.Status.Phase == corev1.PodSucceeded
	return over && w.released && len(w.containers) > 0 && !pod.IsStatic(w.pod)
}

// podWithLogsOnly returns the pod if it has ended and only the logs of its containers are left. Otherwise it returns
// nil.
func (w *worker) podWithLogsOnly() *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	over := w.pod.Status.Phase == corev1.PodFailed || w.pod.Status.Phase == corev1.PodSucceeded
	if !over || !w.released || len(w.containers) > 0 || pod.IsStatic(w.pod) {
		return nil
	}
	return w.pod
}

// allWorkers returns the current workers.
func (k *Kubelet) allWorkers() []*worker {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.workers))
}

// discardEnded has the containers of ended pods removed, together with their writable layers and logs. It waits up to
// discardTimeout for the removal. It also removes the logs of evicted pods whose containers are gone. It reports
// whether it found any container to remove.
func (k *Kubelet) discardEnded(ctx context.Context) (found bool) {
	for _, w := range k.allWorkers() {
		if w.hasContainersLeft() {
			w.updateInbox(func() { w.discardRequested = true })
			found = true
		} else if p := w.podWithLogsOnly(); p != nil {
			if err := k.logs.RemoveAll(k.logs.Pod(p)); err != nil {
				k.env.Log.Warn("remove the logs of an evicted pod", "pod", podName(p), "error", err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, discardTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for slices.ContainsFunc(k.allWorkers(), (*worker).hasContainersLeft) {
		select {
		case <-ctx.Done():
			return found
		case <-tick.C:
		}
	}
	return found
}

// limitStorage evicts pods that exceed their limits on ephemeral storage: volumes, container file systems and logs.
func (k *Kubelet) limitStorage(ctx context.Context) {
	// Statistics are expensive, because the runtime collects them for every container. Ask once, and only if a pod has
	// a limit.
	layers := sync.OnceValues(func() (map[types.UID]map[string]int64, error) {
		layers, err := k.layerSizes(ctx)
		if err != nil {
			k.env.Log.Warn("look for pods that take too much of the disk", "error", err)
		}
		return layers, err
	})
	for _, w := range k.allWorkers() {
		w.mu.Lock()
		p, over := w.pod, w.evicted != nil || w.removed
		w.mu.Unlock()
		ended := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
		if ctx.Err() != nil || over || ended || pod.IsCritical(p) || p.DeletionTimestamp != nil {
			continue
		}
		message := k.volumes.ExceededLimit(p)
		if message == "" && hasStorageLimit(p) {
			if all, err := layers(); err == nil {
				message = storageExcess(p, k.podDiskUsage(p, all[p.UID]))
			}
		}
		if message != "" {
			k.recordEvent(p, corev1.EventTypeWarning, "Evicted", "%s", message)
			k.metrics.Evictions.WithLabelValues("ephemeralpodfs.limit").Inc()
			w.updateInbox(func() { w.evicted = &pod.End{Phase: corev1.PodFailed, Reason: "Evicted", Message: message} })
		}
	}
}

type evictionCandidate struct {
	worker        *worker
	pod           *corev1.Pod
	isOverRequest bool
	priority      int32
	excess        int64
}

// processIDs is the resource that pods cannot request, as upstream's messages name it.
const processIDs corev1.ResourceName = "pids"

// evictionOrder compares the pods to evict: those above their requests first, then the lowest priority, then the
// largest excess.
func evictionOrder(a, b evictionCandidate) int {
	if a.isOverRequest != b.isOverRequest {
		if a.isOverRequest {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(b.excess, a.excess))
}

func newCandidate(w *worker, p *corev1.Pod, what corev1.ResourceName, used int64) evictionCandidate {
	v := evictionCandidate{worker: w, pod: p}
	if p.Spec.Priority != nil {
		v.priority = *p.Spec.Priority
	}
	requested := resource.PodRequests(p, resource.PodResourcesOptions{})[what]
	v.excess = used - requested.Value()
	v.isOverRequest = v.excess > 0 && what != processIDs // no pod requests process IDs
	return v
}

// podUsage is what the containers of a pod use: bytes of memory, and processes.
type podUsage struct{ memory, processes int64 }

// usageByPod returns the usage of all pods, as the runtime reports it.
func (k *Kubelet) usageByPod(ctx context.Context) (map[types.UID]podUsage, error) {
	usage := map[types.UID]podUsage{}
	stats, err := k.runtime.ListPodSandboxStats(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range stats {
		uid := types.UID(s.GetAttributes().GetMetadata().GetUid())
		used := usage[uid] // a pod may have a former sandbox, too
		used.processes += int64(s.GetLinux().GetProcess().GetProcessCount().GetValue())
		for _, c := range s.GetLinux().GetContainers() {
			used.memory += int64(c.GetMemory().GetWorkingSetBytes().GetValue())
		}
		usage[uid] = used
	}
	return usage, nil
}
