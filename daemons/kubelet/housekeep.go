package kubelet

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kubelet/cgroup"
)

// periodicTask is a periodic task for the whole node. Each chore has its own loop, so that a chore that hangs does not
// delay the others. An unmount from a dead file server can hang, for example.
type periodicTask struct {
	name     string
	interval time.Duration
	deadline time.Duration // cancels the context; a chore that ignores the context runs on
	run      func(context.Context)
}

// periodicTasks returns the chores of the node: eviction, log rotation, and removal of orphans and unused images, among
// others.
func (k *Kubelet) periodicTasks() []periodicTask {
	unused := map[string]time.Time{}
	suspects := map[string]bool{}
	return []periodicTask{
		{"eviction", 10 * time.Second, 10 * time.Second, k.evict},
		{"shares of burstable pods", 10 * time.Second, 10 * time.Second,
			func(context.Context) { k.updateBurstableShares() }},
		{"deferred resizes", 5 * time.Second, 10 * time.Second, func(context.Context) { k.retryResizes() }},
		{"limits of storage", 10 * time.Second, time.Minute, k.limitStorage},
		{"use of volumes", time.Minute, time.Minute, func(context.Context) { k.claimUsageByPod() }},
		{"log rotation", k.file.ContainerLogMonitorInterval.Duration, time.Minute, k.rotateLogs},
		{"image collection", time.Minute, 10 * time.Minute, func(ctx context.Context) { k.collectImages(ctx, unused) }},
		{
			"orphaned sandboxes",
			time.Minute,
			2 * time.Minute,
			func(ctx context.Context) { k.adoptOrphans(ctx, suspects) },
		},
		{"orphaned volumes", time.Minute, time.Minute, k.sweepVolumes},
		{"orphaned devices", time.Minute, time.Minute, k.sweepDevices},
		{"orphaned cgroups", time.Minute, time.Minute, k.sweepCgroups},
		{"orphaned logs", time.Minute, time.Minute, k.sweepLogs},
	}
}

// runPeriodicTasks runs all chores until ctx ends. A chore that hangs in the kernel is left running, because it cannot
// be stopped.
func (k *Kubelet) runPeriodicTasks(ctx context.Context) {
	select {
	case <-k.synced:
	case <-ctx.Done():
		return
	}
	for _, c := range k.tasks {
		go k.runPeriodically(ctx, c)
	}
	<-ctx.Done()
}

// runPeriodically runs a chore at once and then at every interval, one run at a time. No goroutine waits between runs,
// because a process with many simulated nodes would otherwise have thousands of them.
func (k *Kubelet) runPeriodically(ctx context.Context, c periodicTask) {
	if ctx.Err() != nil {
		return
	}
	began := time.Now()
	one, cancel := context.WithTimeout(ctx, c.deadline)
	slow := time.AfterFunc(c.deadline, func() {
		k.env.Log.Warn("housekeeping takes longer than it should", "what", c.name, "deadline", c.deadline)
	})
	c.run(one)
	took := time.Since(began)
	if !slow.Stop() {
		k.env.Log.Info("housekeeping goes on", "what", c.name, "took", took)
	}
	cancel()
	time.AfterFunc(max(0, c.interval-took), func() { k.runPeriodically(ctx, c) })
}

// updateBurstableShares sets the CPU weight of the burstable class to the sum of the requests of its running pods. If
// memory reservation is enabled, it also protects the memory that pods request.
func (k *Kubelet) updateBurstableShares() {
	k.cpuMutex.Lock()
	defer k.cpuMutex.Unlock()
	k.mu.Lock()
	var pods []*corev1.Pod
	for _, w := range k.workers {
		w.mu.Lock()
		if w.evicted == nil && w.pod.Status.Phase != corev1.PodFailed && w.pod.Status.Phase != corev1.PodSucceeded {
			pods = append(pods, w.pod)
		}
		w.mu.Unlock()
	}
	k.mu.Unlock()
	if err := k.cgroups.SetBurstableShares(cgroup.BurstableShares(pods)); err != nil {
		k.env.Log.Warn("set the CPU shares of burstable pods", "error", err)
	}
	var guaranteed, burstable int64
	if k.isMemoryProtected() {
		for _, p := range pods {
			least, low := cgroup.ProtectedMemory(p)
			guaranteed, burstable = guaranteed+least, burstable+low
		}
	}
	if protected := [2]int64{guaranteed, burstable}; k.protectedMemory == nil || *k.protectedMemory != protected {
		if err := k.cgroups.Protect(guaranteed, burstable); err != nil {
			k.env.Log.Warn("protect the memory of pods", "error", err)
			return
		}
		k.protectedMemory = &protected
	}
}
