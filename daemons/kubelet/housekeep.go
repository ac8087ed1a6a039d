package kubelet

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kubelet/cgroup"
)

// chore is one thing that the kubelet looks after now and then for the node as a whole. Each has a loop of its own:
// what hangs in one, an unmount of a file server that is gone perhaps, holds up no other.
type chore struct {
	name     string
	every    time.Duration
	deadline time.Duration // for what listens to its context
	do       func(context.Context)
}

// housekeeping is what no single pod does: what was left behind, shortage, logs that grow, images that nobody uses.
func (k *Kubelet) housekeeping() []chore {
	unused := map[string]time.Time{}
	suspects := map[string]bool{}
	return []chore{
		{"eviction", 10 * time.Second, 10 * time.Second, k.evict},
		{"shares of burstable pods", 10 * time.Second, 10 * time.Second, func(context.Context) { k.shareCPU() }},
		{"deferred resizes", 5 * time.Second, 10 * time.Second, func(context.Context) { k.retryResizes() }},
		{"limits of storage", 10 * time.Second, time.Minute, k.limitStorage},
		{"use of volumes", time.Minute, time.Minute, func(context.Context) { k.claimUses() }},
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

// housekeep has all chores done until ctx ends. What hangs in the kernel then is left behind: nothing can end it.
func (k *Kubelet) housekeep(ctx context.Context) {
	select {
	case <-k.synced:
	case <-ctx.Done():
		return
	}
	for _, c := range k.chores {
		go k.keepDoing(ctx, c)
	}
	<-ctx.Done()
}

// keepDoing does a chore at once and then every so often, one at a time. Between times no goroutine waits: where many
// nodes only pretend there would be thousands.
func (k *Kubelet) keepDoing(ctx context.Context, c chore) {
	if ctx.Err() != nil {
		return
	}
	began := time.Now()
	one, cancel := context.WithTimeout(ctx, c.deadline)
	slow := time.AfterFunc(c.deadline, func() {
		k.env.Log.Warn("housekeeping takes longer than it should", "what", c.name, "deadline", c.deadline)
	})
	c.do(one)
	took := time.Since(began)
	if !slow.Stop() {
		k.env.Log.Info("housekeeping goes on", "what", c.name, "took", took)
	}
	cancel()
	time.AfterFunc(max(0, c.every-took), func() { k.keepDoing(ctx, c) })
}

// shareCPU sets the CPU weight of the burstable class to the sum of the requests of its running pods. If memory
// reservation is enabled, it also protects the memory that pods request.
func (k *Kubelet) shareCPU() {
	k.sharing.Lock()
	defer k.sharing.Unlock()
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
	if err := k.cgroups.Burstable(cgroup.BurstableShares(pods)); err != nil {
		k.env.Log.Warn("set the CPU shares of burstable pods", "error", err)
	}
	var guaranteed, burstable int64
	if k.reserves() {
		for _, p := range pods {
			least, low := cgroup.Reserved(p)
			guaranteed, burstable = guaranteed+least, burstable+low
		}
	}
	if protected := [2]int64{guaranteed, burstable}; k.protected == nil || *k.protected != protected {
		if err := k.cgroups.Protect(guaranteed, burstable); err != nil {
			k.env.Log.Warn("protect the memory of pods", "error", err)
			return
		}
		k.protected = &protected
	}
}
