package housekeeping

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"

	"clusterctl/daemons/kubelet/machine"
	"clusterctl/daemons/kubelet/nodeagent"
	"clusterctl/daemons/kubelet/pod"
)

// Evictor ends pods when the machine is short of something or when they exceed their limits. One goroutine calls Run.
type Evictor struct {
	Pods      Pods
	Machine   interface{ Disk() (machine.Disk, error) }
	Pressures interface{ Measure() nodeagent.Pressures }
	Storage   *Storage
	Images    *Images
	Count     func(signal string) // counts an eviction
	Log       *slog.Logger

	reclaiming reclaimState
	freed      map[types.UID]bool // evicted pods that were seen to have nothing left
}

// Run ends at most one pod when the machine is short of memory, disk or process IDs. It chooses the pod in upstream's
// order: pods above their requests first, then the lowest priority, then the largest excess over the request.
func (e *Evictor) Run(ctx context.Context) {
	now := e.Pressures.Measure()
	signal, what := "", corev1.ResourceMemory
	if e.isReclaiming(now, time.Now()) {
		return // the resources that the last evicted pod releases may be enough
	}
	switch {
	case now.Memory:
		signal = "memory.available"
	case now.Disk:
		signal, what = "nodefs.available", corev1.ResourceEphemeralStorage
		freed := e.discardEnded(ctx)
		freed = e.Images.Collect(ctx, nil) || freed
		if !e.Pressures.Measure().Disk {
			return
		}
		if freed { // the runtime frees the space later, as it does for an evicted pod
			if d, err := e.Machine.Disk(); err == nil && e.reclaiming.needsWait(true, d.Available, time.Now()) {
				return
			}
		}
	case now.PIDs:
		signal, what = "pid.available", processIDs
	default:
		return
	}
	// Without the usage of the pods no pod can be chosen. The next run tries again.
	usage, err := UsageByPod(ctx, e.Storage.Runtime)
	if err != nil {
		e.Log.Warn("no pod is evicted: what the pods use is not known", "signal", signal, "error", err)
		return
	}
	layers, err := e.Storage.layerSizes(ctx)
	if err != nil {
		e.Log.Warn("no pod is evicted: what the pods store is not known", "signal", signal, "error", err)
		return
	}
	var ranked []evictionCandidate
	for _, s := range e.Pods.Snapshot() {
		p, isOver := s.Pod, s.Evicted != nil || s.Removed
		if isOver || pod.IsCritical(p) || p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed ||
			p.Status.Phase == corev1.PodSucceeded {
			continue
		}
		used := usage[p.UID].Memory
		switch what {
		case corev1.ResourceEphemeralStorage:
			used = e.Storage.usage(p, layers[p.UID]).total()
		case processIDs:
			used = usage[p.UID].Processes
		}
		ranked = append(ranked, newCandidate(p, what, used))
	}
	if len(ranked) == 0 {
		e.Log.Warn("the machine is short, and no pod is left that may be evicted", "signal", signal)
		return
	}
	v := slices.MinFunc(ranked, evictionOrder)
	message := fmt.Sprintf("The node was low on resource: %s. ", what)
	e.Log.Warn("evicting a pod", "pod", podName(v.pod), "signal", signal)
	e.Count(signal)
	e.Pods.Report(v.pod, "Evicted", message)
	e.Pods.Evict(v.pod.UID, &pod.End{Phase: corev1.PodFailed, Reason: "Evicted", Message: message,
		IsNodePressure: true}, time.Now())
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
	start, grewAt time.Time // when the containers were removed, and when free space last grew
	maxFree       int64     // largest free space seen, in bytes
}

// isReclaiming reports whether a recently evicted pod is still releasing resources that the machine is short of.
func (e *Evictor) isReclaiming(short nodeagent.Pressures, now time.Time) bool {
	isGone := false
	pods := e.Pods.Snapshot()
	maps.DeleteFunc(e.freed, func(uid types.UID, _ bool) bool {
		return !slices.ContainsFunc(pods, func(p Pod) bool { return p.Pod.UID == uid })
	})
	for _, p := range pods {
		evicted, at, left := p.Evicted, p.EvictedAt, !p.Released || len(p.Containers) > 0
		first := evicted != nil && evicted.IsNodePressure && !left && !e.freed[p.Pod.UID]
		if first {
			if e.freed == nil {
				e.freed = map[types.UID]bool{}
			}
			e.freed[p.Pod.UID] = true
		}
		if left && evicted != nil && evicted.IsNodePressure && now.Sub(at) < releaseTimeout {
			return true
		}
		isGone = isGone || first
	}
	if !short.Disk {
		return false
	}
	d, err := e.Machine.Disk()
	if err != nil {
		return false
	}
	waits := e.reclaiming.needsWait(isGone, d.Available, now)
	return waits && !short.Memory // if memory is short, the kernel would kill processes during the wait
}

// needsWait records the free space (room) in bytes, and whether a pod's containers have just been removed (isGone). It
// reports whether free space may still grow.
func (r *reclaimState) needsWait(isGone bool, room int64, now time.Time) bool {
	switch {
	case isGone:
		*r = reclaimState{start: now, grewAt: now, maxFree: room}
	case room > r.maxFree:
		r.grewAt, r.maxFree = now, room
	}
	return !r.start.IsZero() && now.Sub(r.grewAt) < freeTimeout && now.Sub(r.start) < maxFreeTimeout
}

// discardEnded has the containers of ended pods removed, together with their writable layers and logs. It waits up to
// discardTimeout for the removal. It also removes the logs of evicted pods whose containers are gone. It reports
// whether it found any container to remove.
func (e *Evictor) discardEnded(ctx context.Context) (found bool) {
	for _, p := range e.Pods.Snapshot() {
		if hasContainersLeft(p) {
			e.Pods.Discard(p.Pod.UID)
			found = true
		} else if logs := e.Storage.Logs; p.canDiscard() {
			if err := logs.RemoveAll(logs.Pod(p.Pod)); err != nil {
				e.Log.Warn("remove the logs of an evicted pod", "pod", podName(p.Pod), "error", err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, discardTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for slices.ContainsFunc(e.Pods.Snapshot(), hasContainersLeft) {
		select {
		case <-ctx.Done():
			return found
		case <-tick.C:
		}
	}
	return found
}

// LimitStorage evicts pods that exceed their limits on ephemeral storage: volumes, container file systems and logs.
func (e *Evictor) LimitStorage(ctx context.Context) {
	// Statistics are expensive, because the runtime collects them for every container. Ask once, and only if a pod has
	// a limit.
	layers := sync.OnceValues(func() (map[types.UID]map[string]int64, error) {
		layers, err := e.Storage.layerSizes(ctx)
		if err != nil {
			e.Log.Warn("look for pods that take too much of the disk", "error", err)
		}
		return layers, err
	})
	for _, s := range e.Pods.Snapshot() {
		p, isOver := s.Pod, s.Evicted != nil || s.Removed
		ended := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
		if ctx.Err() != nil || isOver || ended || pod.IsCritical(p) || p.DeletionTimestamp != nil {
			continue
		}
		message := e.Storage.Volumes.ExceededLimit(p)
		if message == "" && hasStorageLimit(p) {
			if all, err := layers(); err == nil {
				message = storageExcess(p, e.Storage.usage(p, all[p.UID]))
			}
		}
		if message != "" {
			e.Pods.Report(p, "Evicted", message)
			e.Count("ephemeralpodfs.limit")
			e.Pods.Evict(p.UID, &pod.End{Phase: corev1.PodFailed, Reason: "Evicted", Message: message}, time.Time{})
		}
	}
}

type evictionCandidate struct {
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

func newCandidate(p *corev1.Pod, what corev1.ResourceName, used int64) evictionCandidate {
	v := evictionCandidate{pod: p}
	if p.Spec.Priority != nil {
		v.priority = *p.Spec.Priority
	}
	requested := resource.PodRequests(p, resource.PodResourcesOptions{})[what]
	v.excess = used - requested.Value()
	v.isOverRequest = v.excess > 0 && what != processIDs // no pod requests process IDs
	return v
}
