package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/kubelet/pod"
)

// Image collection begins when the disk is this full, and ends at the lower mark.
const (
	imagesHigh   = 85
	imagesLow    = 80
	imagesMinAge = 2 * time.Minute
)

// housekeep looks after what no single pod does: what was left behind, shortage,
// logs that grow, images that nobody uses.
func (k *Kubelet) housekeep(ctx context.Context) {
	select {
	case <-k.synced:
	case <-ctx.Done():
		return
	}
	k.sweep()
	unused := map[string]time.Time{}
	quick, slow := time.NewTicker(10*time.Second), time.NewTicker(time.Minute)
	defer quick.Stop()
	defer slow.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-quick.C:
			k.evict(ctx)
		case <-slow.C:
			k.rotateLogs(ctx)
			k.collectImages(ctx, unused)
			k.sweep()
		}
	}
}

// sweep removes directories, cgroups and logs of pods that no worker has.
func (k *Kubelet) sweep() {
	k.mu.Lock()
	known := map[string]bool{}
	for uid := range k.workers {
		known[string(uid)] = true
	}
	k.mu.Unlock()
	uids, err := k.volumes.Pods()
	if err != nil {
		k.env.Log.Warn("look for orphaned volumes", "error", err)
	}
	for _, uid := range uids {
		if !known[uid] {
			if err := k.volumes.Teardown(uid); err != nil {
				k.env.Log.Warn("remove orphaned volumes", "uid", uid, "error", err)
			}
		}
	}
	groups, err := k.cgroups.Pods()
	if err != nil {
		k.env.Log.Warn("look for orphaned cgroups", "error", err)
	}
	for uid, path := range groups {
		if !known[uid] {
			if err := k.cgroups.Remove(path); err != nil {
				k.env.Log.Warn("remove an orphaned cgroup", "cgroup", path, "error", err)
			}
		}
	}
	entries, _ := os.ReadDir(k.logRoot)
	for _, e := range entries {
		parts := strings.Split(e.Name(), "_")
		if uid := parts[len(parts)-1]; len(parts) == 3 && !known[uid] {
			_ = os.RemoveAll(filepath.Join(k.logRoot, e.Name()))
		}
	}
	k.sweepLinks()
}

// sweepLinks removes names of container logs that are gone.
func (k *Kubelet) sweepLinks() {
	links, _ := filepath.Glob(filepath.Join(filepath.Dir(k.logRoot), "containers", "*.log"))
	for _, link := range links {
		if _, err := os.Stat(link); os.IsNotExist(err) {
			_ = os.Remove(link)
		}
	}
}

// evict ends one pod when the machine is short of something, the one that is
// worth least by upstream's order: over its requests first, then by priority, then by
// how much it is over.
func (k *Kubelet) evict(ctx context.Context) {
	now := k.short()
	signal, what := "", corev1.ResourceMemory
	switch {
	case now.memory:
		signal = "memory.available"
	case now.disk:
		signal, what = "nodefs.available", corev1.ResourceEphemeralStorage
		k.collectImages(ctx, nil)
		if !k.short().disk {
			return
		}
	case now.pids:
		signal = "pid.available"
	default:
		return
	}
	usage := k.memoryByPod(ctx)
	k.mu.Lock()
	candidates := make([]*worker, 0, len(k.workers))
	for _, w := range k.workers {
		candidates = append(candidates, w)
	}
	k.mu.Unlock()
	var ranked []victim
	for _, w := range candidates {
		w.mu.Lock()
		p, over := w.pod, w.evicted != nil || w.removed
		w.mu.Unlock()
		if over || pod.Static(p) || p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
			continue
		}
		ranked = append(ranked, rank(w, p, usage[p.UID]))
	}
	if len(ranked) == 0 {
		return
	}
	slices.SortFunc(ranked, func(a, b victim) int {
		if a.over != b.over {
			if a.over {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(b.excess, a.excess))
	})
	v := ranked[0]
	message := fmt.Sprintf("The node was low on resource: %s. ", what)
	k.env.Log.Warn("evicting a pod", "pod", key(v.pod), "signal", signal)
	k.metrics.evictions.WithLabelValues(signal).Inc()
	k.event(v.pod, corev1.EventTypeWarning, "Evicted", "%s", message)
	v.worker.tell(func() { v.worker.evicted = &pod.End{Phase: corev1.PodFailed, Reason: "Evicted", Message: message} })
}

type victim struct {
	worker   *worker
	pod      *corev1.Pod
	over     bool
	priority int32
	excess   int64
}

func rank(w *worker, p *corev1.Pod, used int64) victim {
	v := victim{worker: w, pod: p}
	if p.Spec.Priority != nil {
		v.priority = *p.Spec.Priority
	}
	requested := int64(0)
	for i := range p.Spec.Containers {
		requested += p.Spec.Containers[i].Resources.Requests.Memory().Value()
	}
	v.excess = used - requested
	v.over = v.excess > 0
	return v
}

func (k *Kubelet) memoryByPod(ctx context.Context) map[types.UID]int64 {
	used := map[types.UID]int64{}
	stats, err := k.runtime.ListPodSandboxStats(ctx)
	if err != nil {
		return used
	}
	for _, s := range stats {
		for _, c := range s.GetLinux().GetContainers() {
			used[types.UID(s.GetAttributes().GetMetadata().GetUid())] += int64(c.GetMemory().GetWorkingSetBytes().GetValue())
		}
	}
	return used
}

// collectImages removes images that no container uses, those unused for longest
// first, while the disk is fuller than it should be. Without a memory of when each was
// last used (unused nil), all unused ones may go.
func (k *Kubelet) collectImages(ctx context.Context, unused map[string]time.Time) {
	full := func() int64 {
		d, err := k.machine.Disk()
		if err != nil || d.Capacity == 0 {
			return 0
		}
		return 100 - d.Available*100/d.Capacity
	}
	images, err := k.runtime.ListImages(ctx)
	if err != nil {
		return
	}
	containers, err := k.runtime.ListContainers(ctx, nil)
	if err != nil {
		return
	}
	used := map[string]bool{}
	for _, c := range containers {
		used[c.ImageId], used[c.ImageRef] = true, true
	}
	type candidate struct {
		id    string
		since time.Time
	}
	var candidates []candidate
	now := time.Now()
	for _, i := range images {
		if used[i.Id] || i.Pinned || slices.ContainsFunc(i.RepoDigests, func(d string) bool { return used[d] }) {
			delete(unused, i.Id)
			continue
		}
		since := time.Time{}
		if unused != nil {
			if _, ok := unused[i.Id]; !ok {
				unused[i.Id] = now
			}
			since = unused[i.Id]
		}
		if now.Sub(since) >= imagesMinAge {
			candidates = append(candidates, candidate{i.Id, since})
		}
	}
	if full() < imagesHigh && unused != nil {
		return
	}
	slices.SortFunc(candidates, func(a, b candidate) int { return a.since.Compare(b.since) })
	for _, c := range candidates {
		if full() < imagesLow {
			return
		}
		if err := k.runtime.RemoveImage(ctx, c.id); err != nil {
			k.env.Log.Warn("remove an unused image", "image", c.id, "error", err)
			continue
		}
		k.env.Log.Info("removed an unused image", "image", c.id)
	}
}
