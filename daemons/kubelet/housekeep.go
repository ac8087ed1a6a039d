package kubelet

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/kubelet/housekeeping"
	"clusterctl/daemons/kubelet/pod"
)

// housekeepers holds the parts of the node's housekeeping.
type housekeepers struct {
	images  *housekeeping.Images
	evictor *housekeeping.Evictor
	sweeper *housekeeping.Sweeper
	rotator *housekeeping.Rotator
	shares  *housekeeping.Shares
}

// newHousekeepers wires the node's housekeeping.
func (k *Kubelet) newHousekeepers() housekeepers {
	pods, log := podRegistry{k}, k.env.Log
	storage := &housekeeping.Storage{Runtime: k.runtime, Volumes: k.volumes, Logs: k.logs, Log: log}
	images := &housekeeping.Images{Runtime: k.runtime, Machine: k.machine, Pods: pods, Records: k.pullRecords,
		File: &k.file, Log: log}
	return housekeepers{
		images: images,
		evictor: &housekeeping.Evictor{Pods: pods, Machine: k.machine, Pressures: k.pressures, Storage: storage,
			Images: images, Count: func(signal string) { k.metrics.Evictions.WithLabelValues(signal).Inc() }, Log: log},
		sweeper: &housekeeping.Sweeper{Pods: pods, VolumeDirs: k.volumes, Groups: k.cgroups, Claims: k.devices,
			LogDir: k.logs, Log: log},
		rotator: &housekeeping.Rotator{Pods: pods, Logs: k.logs, Runtime: k.runtime, File: &k.file, Log: log},
		shares: &housekeeping.Shares{Pods: pods, Cgroups: k.cgroups, Protects: k.limits().isMemoryProtected(),
			Log: log},
	}
}

// periodicTasks returns the periodic tasks of the node in order.
func (k *Kubelet) periodicTasks() []housekeeping.Task {
	unused, suspects, c := map[string]time.Time{}, map[string]bool{}, &k.housekeepers
	return []housekeeping.Task{
		{Name: "eviction", Interval: 10 * time.Second, Deadline: 10 * time.Second, Run: c.evictor.Run},
		{Name: "shares of burstable pods", Interval: 10 * time.Second, Deadline: 10 * time.Second,
			Run: func(context.Context) { c.shares.Update() }},
		{Name: "deferred resizes", Interval: 5 * time.Second, Deadline: 10 * time.Second,
			Run: func(context.Context) { k.retryResizes() }},
		{Name: "limits of storage", Interval: 10 * time.Second, Deadline: time.Minute, Run: c.evictor.LimitStorage},
		{Name: "use of volumes", Interval: time.Minute, Deadline: time.Minute,
			Run: func(context.Context) { k.claimUsageByPod() }},
		{Name: "log rotation", Interval: k.file.ContainerLogMonitorInterval.Duration, Deadline: time.Minute,
			Run: c.rotator.Run},
		{Name: "image collection", Interval: time.Minute, Deadline: 10 * time.Minute,
			Run: func(ctx context.Context) { c.images.Collect(ctx, unused) }},
		{Name: "orphaned sandboxes", Interval: 15 * time.Second, Deadline: 2 * time.Minute,
			Run: func(ctx context.Context) { k.adoptOrphans(ctx, suspects) }},
		{Name: "orphaned volumes", Interval: time.Minute, Deadline: time.Minute, Run: c.sweeper.Volumes},
		{Name: "orphaned devices", Interval: time.Minute, Deadline: time.Minute, Run: c.sweeper.Devices},
		{Name: "orphaned cgroups", Interval: time.Minute, Deadline: time.Minute, Run: c.sweeper.Cgroups},
		{Name: "orphaned logs", Interval: time.Minute, Deadline: time.Minute, Run: c.sweeper.Logs},
	}
}

// runPeriodicTasks runs all tasks from when the pods of the API are listed until ctx ends.
func (k *Kubelet) runPeriodicTasks(ctx context.Context) {
	select {
	case <-k.synced:
	case <-ctx.Done():
		return
	}
	housekeeping.Run(ctx, k.env.Log, k.tasks)
}

// podRegistry shows the pods of the kubelet to its server and to housekeeping.
type podRegistry struct{ k *Kubelet }

// Snapshot implements housekeeping.Pods.
func (r podRegistry) Snapshot() (all []housekeeping.Pod) {
	for _, w := range r.k.pods.all() {
		b := &w.inbox
		b.mu.Lock()
		all = append(all, housekeeping.Pod{Pod: b.pod, Removed: b.removed, Evicted: b.evicted, EvictedAt: b.evictedAt,
			Released: b.released, Containers: b.containers})
		b.mu.Unlock()
	}
	return all
}

// Known implements housekeeping.Pods.
func (r podRegistry) Known() (map[string]bool, bool) { return r.k.knownPods() }

// Evict implements housekeeping.Pods.
func (r podRegistry) Evict(uid types.UID, end *pod.End, at time.Time) {
	r.update(uid, func(w *worker) { w.inbox.evicted, w.inbox.evictedAt = end, at })
}

// Discard implements housekeeping.Pods.
func (r podRegistry) Discard(uid types.UID) {
	r.update(uid, func(w *worker) { w.inbox.discardRequested = true })
}

// Report implements housekeeping.Pods.
func (r podRegistry) Report(p *corev1.Pod, reason, message string) {
	r.k.events.record(p, corev1.EventTypeWarning, reason, "%s", message)
}

// update changes the inbox of a pod's worker, if there is one.
func (r podRegistry) update(uid types.UID, change func(w *worker)) {
	r.k.pods.mu.Lock()
	w := r.k.pods.workers[uid]
	r.k.pods.mu.Unlock()
	if w != nil {
		w.inbox.update(func() { change(w) })
	}
}

// all returns the current workers.
func (s *podWorkers) all() []*worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.workers))
}
