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

	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/kubelet/pod"
)

// evict ends at most one pod when the machine is short of memory, disk or process IDs. It chooses the pod in upstream's
// order: pods above their requests first, then the lowest priority, then the largest excess over the request.
func (k *Kubelet) evict(ctx context.Context) {
	now := k.short()
	signal, what := "", corev1.ResourceMemory
	if k.reclaims(now, time.Now()) {
		return // the resources that the last evicted pod releases may be enough
	}
	switch {
	case now.memory:
		signal = "memory.available"
	case now.disk:
		signal, what = "nodefs.available", corev1.ResourceEphemeralStorage
		freed := k.discard(ctx)
		freed = k.collectImages(ctx, nil) || freed
		if !k.short().disk {
			return
		}
		if freed { // the runtime frees the space later, as it does for an evicted pod
			if d, err := k.machine.Disk(); err == nil && k.freeing.waits(true, d.Available, time.Now()) {
				return
			}
		}
	case now.pids:
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
	layers, err := k.layers(ctx)
	if err != nil {
		k.env.Log.Warn("no pod is evicted: what the pods store is not known", "signal", signal, "error", err)
		return
	}
	var ranked []victim
	for _, w := range k.all() {
		w.mu.Lock()
		p, over := w.pod, w.evicted != nil || w.removed
		w.mu.Unlock()
		if over || pod.Critical(p) || p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed ||
			p.Status.Phase == corev1.PodSucceeded {
			continue
		}
		used := usage[p.UID].memory
		switch what {
		case corev1.ResourceEphemeralStorage:
			used = k.stored(p, layers[p.UID]).sum()
		case processIDs:
			used = usage[p.UID].processes
		}
		ranked = append(ranked, rank(w, p, what, used))
	}
	if len(ranked) == 0 {
		k.env.Log.Warn("the machine is short, and no pod is left that may be evicted", "signal", signal)
		return
	}
	v := slices.MinFunc(ranked, evictionOrder)
	message := fmt.Sprintf("The node was low on resource: %s. ", what)
	k.env.Log.Warn("evicting a pod", "pod", key(v.pod), "signal", signal)
	k.metrics.evictions.WithLabelValues(signal).Inc()
	k.event(v.pod, corev1.EventTypeWarning, "Evicted", "%s", message)
	v.worker.tell(func() {
		v.worker.evicted = &pod.End{Phase: corev1.PodFailed, Reason: "Evicted", Message: message, Pressed: true}
		v.worker.evictedAt = time.Now()
	})
}

const (
	// yieldTime is how long the next eviction waits while the last evicted pod still holds resources of the machine.
	yieldTime = 30 * time.Second
	// freeTime is how long to wait for free disk space to grow after containers were removed, because the runtime
	// deletes their data afterwards. mostFreeTime limits the wait while free space is growing.
	freeTime, mostFreeTime = 30 * time.Second, 5 * time.Minute
	// discardTime is how long to wait for the containers of ended pods to be removed.
	discardTime = 5 * time.Second
)

// reclaim tracks how free disk space grows after the containers of an evicted pod were removed.
type reclaim struct {
	began, grew time.Time // when the containers were removed, and when free space last grew
	most        int64     // largest free space seen, in bytes
}

// reclaims reports whether a recently evicted pod is still releasing resources that the machine is short of.
func (k *Kubelet) reclaims(short pressed, now time.Time) bool {
	gone := false
	for _, w := range k.all() {
		w.mu.Lock()
		evicted, at, left := w.evicted, w.evictedAt, !w.released || len(w.containers) > 0
		first := evicted != nil && evicted.Pressed && !left && !w.gaveBack
		w.gaveBack = w.gaveBack || first
		w.mu.Unlock()
		if left && evicted != nil && evicted.Pressed && now.Sub(at) < yieldTime {
			return true
		}
		gone = gone || first
	}
	if !short.disk {
		return false
	}
	d, err := k.machine.Disk()
	if err != nil {
		return false
	}
	waits := k.freeing.waits(gone, d.Available, now)
	return waits && !short.memory // if memory is short, the kernel would kill processes during the wait
}

// waits records the free space (room) in bytes, and whether a pod's containers have just been removed (gone). It
// reports whether free space may still grow.
func (r *reclaim) waits(gone bool, room int64, now time.Time) bool {
	switch {
	case gone:
		*r = reclaim{began: now, grew: now, most: room}
	case room > r.most:
		r.grew, r.most = now, room
	}
	return !r.began.IsZero() && now.Sub(r.grew) < freeTime && now.Sub(r.began) < mostFreeTime
}

// remains reports whether a pod has ended and still has containers.
func (w *worker) remains() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	over := w.pod.Status.Phase == corev1.PodFailed || w.pod.Status.Phase == corev1.PodSucceeded
	return over && w.released && len(w.containers) > 0 && !pod.Static(w.pod)
}

// logsAlone returns the pod if it has ended and only the logs of its containers are left. Otherwise it returns nil.
func (w *worker) logsAlone() *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	over := w.pod.Status.Phase == corev1.PodFailed || w.pod.Status.Phase == corev1.PodSucceeded
	if !over || !w.released || len(w.containers) > 0 || pod.Static(w.pod) {
		return nil
	}
	return w.pod
}

// all returns the current workers.
func (k *Kubelet) all() []*worker {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.workers))
}

// discard has the containers of ended pods removed, together with their writable layers and logs. It waits up to
// discardTime for the removal. It also removes the logs of evicted pods whose containers are gone. It reports whether
// it found any container to remove.
func (k *Kubelet) discard(ctx context.Context) (found bool) {
	for _, w := range k.all() {
		if w.remains() {
			w.tell(func() { w.discard = true })
			found = true
		} else if p := w.logsAlone(); p != nil {
			if err := k.removeLogs(cri.LogDir(k.logRoot, p)); err != nil {
				k.env.Log.Warn("remove the logs of an evicted pod", "pod", key(p), "error", err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, discardTime)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for slices.ContainsFunc(k.all(), (*worker).remains) {
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
		layers, err := k.layers(ctx)
		if err != nil {
			k.env.Log.Warn("look for pods that take too much of the disk", "error", err)
		}
		return layers, err
	})
	for _, w := range k.all() {
		w.mu.Lock()
		p, over := w.pod, w.evicted != nil || w.removed
		w.mu.Unlock()
		ended := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
		if ctx.Err() != nil || over || ended || pod.Critical(p) || p.DeletionTimestamp != nil {
			continue
		}
		message := k.volumes.Exceeded(p)
		if message == "" && limitsStorage(p) {
			if all, err := layers(); err == nil {
				message = overStorage(p, k.stored(p, all[p.UID]))
			}
		}
		if message != "" {
			k.event(p, corev1.EventTypeWarning, "Evicted", "%s", message)
			k.metrics.evictions.WithLabelValues("ephemeralpodfs.limit").Inc()
			w.tell(func() { w.evicted = &pod.End{Phase: corev1.PodFailed, Reason: "Evicted", Message: message} })
		}
	}
}

type victim struct {
	worker   *worker
	pod      *corev1.Pod
	over     bool
	priority int32
	excess   int64
}

// processIDs is the resource that pods cannot request, as upstream's messages name it.
const processIDs corev1.ResourceName = "pids"

// evictionOrder compares the pods to evict: those above their requests first, then the lowest priority, then the
// largest excess.
func evictionOrder(a, b victim) int {
	if a.over != b.over {
		if a.over {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(b.excess, a.excess))
}

func rank(w *worker, p *corev1.Pod, what corev1.ResourceName, used int64) victim {
	v := victim{worker: w, pod: p}
	if p.Spec.Priority != nil {
		v.priority = *p.Spec.Priority
	}
	requested := resource.PodRequests(p, resource.PodResourcesOptions{})[what]
	v.excess = used - requested.Value()
	v.over = v.excess > 0 && what != processIDs // no pod requests process IDs
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
