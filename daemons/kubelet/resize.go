package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-helpers/resource"

	"clusterctl/daemons/kubelet/cgroup"
	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/kubelet/housekeeping"
	"clusterctl/daemons/kubelet/pod"
)

// allocate grants a pod the size in its spec if the node has room for it. It returns the pod with the granted size. The
// caller holds k.pods.mu.
func (k *Kubelet) allocate(w *worker, p *corev1.Pod) *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.desired
	w.desired = p
	if pod.IsStatic(p) {
		return p
	}
	wanted := pod.SpecAllocation(p)
	if equality.Semantic.DeepEqual(wanted, w.allocated) {
		w.resizeState.Pending, w.resizeState.Message = "", ""
		return p
	}
	if p.DeletionTimestamp != nil || k.agent.Node() == nil {
		return pod.WithAllocation(p, w.allocated)
	}
	w.mu.Unlock()
	reason, message := k.checkResize(p)
	w.mu.Lock()
	if reason == "" {
		w.allocated, w.resizeState = wanted, pod.Resize{Generation: max(p.Generation, 1)}
		k.recordEvent(p, corev1.EventTypeNormal, "ResizeStarted", "%s", pod.ResizeMessage("Pod resize started", p, ""))
		return p
	}
	if w.resizeState.Pending != reason || was.Generation != p.Generation {
		k.recordEvent(p, corev1.EventTypeWarning, "Resize"+reason, "%s",
			pod.ResizeMessage("Pod resize "+reason, p, message))
	}
	w.resizeState.Pending, w.resizeState.Message = reason, message
	return pod.WithAllocation(p, w.allocated)
}

// checkResize returns why the node cannot grant the size in a pod's spec, or "" if it can. The caller holds k.pods.mu.
func (k *Kubelet) checkResize(p *corev1.Pod) (reason, message string) {
	requests, allocatable := resource.PodRequests(p, resource.PodResourcesOptions{}), k.agent.Node().Status.Allocatable
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceCPU} {
		want, have := requests[name], allocatable[name]
		if _, known := allocatable[name]; !known || want.Cmp(have) <= 0 {
			continue
		}
		requested, capacity := want.Value(), have.Value()
		if name == corev1.ResourceCPU {
			requested, capacity = want.MilliValue(), have.MilliValue()
		}
		return corev1.PodReasonInfeasible, fmt.Sprintf(
			"Node didn't have enough capacity: %s, requested: %d, capacity: %d", name, requested, capacity)
	}
	if what, message := k.missingResource(p); what != "" {
		return corev1.PodReasonDeferred, message
	}
	return "", ""
}

// retryResizes checks whether there is room now for pending resizes, highest priority first.
func (k *Kubelet) retryResizes() {
	k.pods.mu.Lock()
	defer k.pods.mu.Unlock()
	var waiting []*worker
	for _, w := range k.pods.workers {
		w.mu.Lock()
		if w.evicted == nil && !w.removed && !equality.Semantic.DeepEqual(pod.SpecAllocation(w.desired), w.allocated) {
			waiting = append(waiting, w)
		}
		w.mu.Unlock()
	}
	priority := func(w *worker) int32 {
		if p := w.desired.Spec.Priority; p != nil {
			return *p
		}
		return 0
	}
	slices.SortFunc(waiting, func(a, b *worker) int {
		return cmp.Or(cmp.Compare(priority(b), priority(a)), a.firstSeen.Compare(b.firstSeen))
	})
	for _, w := range waiting {
		w.update(k.allocate(w, w.desired))
	}
}

// resizeContainer sets the CPU and memory of one container to the size granted to its pod.
func (w *worker) resizeContainer(ctx context.Context, f *pod.Facts, step pod.Step) error {
	spec := pod.Find(f.Pod, step.Container)
	if err := w.checkMemoryFits(ctx, f, spec, step.ID); err != nil {
		return err
	}
	if err := w.widenCgroup(f); err != nil {
		return err
	}
	size := cri.Resources(spec.Resources)
	size.Unified = w.k.limits().containerMemory().ResizedFiles(f.Pod, spec)
	return w.k.runtime.UpdateContainerResources(ctx, step.ID, size)
}

// widenCgroup ensures that the pod's cgroup limits are at least as large as those of each container. That includes
// containers that still have to shrink or grow. A cgroup cannot use more than its parent allows.
func (w *worker) widenCgroup(f *pod.Facts) error {
	limits := w.k.limits().podCgroupLimits(f.Pod)
	if w.limits == (cgroup.Limits{}) || limits == w.limits {
		return nil // unchanged, or set by an earlier kubelet, whose containers fit
	}
	if limits = limits.Max(w.limits); limits == w.limits {
		return nil
	}
	if err := w.k.cgroups.Make(w.k.cgroups.Parent(f.Pod), limits); err != nil {
		return fmt.Errorf("resize the pod's cgroup: %w", err)
	}
	w.setLimits(limits)
	w.updateInbox(func() { w.refreshRequested = true }) // sets the final limits
	return nil
}

// fitLimits returns the limits that can be set on the pod's cgroup now, and when to try again. A memory limit below the
// current usage has to wait, because the kernel would kill processes of the pod.
func (w *worker) fitLimits(ctx context.Context, f *pod.Facts, limits cgroup.Limits, again time.Time) (cgroup.Limits,
	time.Time) {
	had := w.limits.MemoryLimit
	// A pod of an earlier kubelet has the limit that it was given, unless it is being resized.
	fits := w.limits == (cgroup.Limits{}) && f.Resize.Generation == 0
	if fits || limits.MemoryLimit == 0 || had != 0 && limits.MemoryLimit >= had {
		return limits, again
	}
	usage, err := housekeeping.UsageByPod(ctx, w.k.runtime)
	problem, used := "", usage[f.Pod.UID].Memory
	switch {
	case err != nil:
		problem = podMemoryPrefix + ": " + cri.Message(err)
	case used > limits.MemoryLimit:
		problem = fmt.Sprintf("%s (%d) below current usage (%d)", podMemoryPrefix, limits.MemoryLimit, used)
	}
	switch {
	case problem == f.Resize.Error:
	case problem != "":
		w.k.recordEvent(f.Pod, corev1.EventTypeWarning, "ResizeError", "%s",
			pod.ResizeMessage("Pod resize error", f.Pod, problem))
		w.updateInbox(func() { w.resizeState.Error = problem })
	case strings.HasPrefix(f.Resize.Error, podMemoryPrefix):
		w.updateInbox(func() { w.resizeState.Error = "" })
	}
	if problem == "" {
		return limits, again
	}
	limits.MemoryLimit = had // zero, which sets no limit, if the old limit is unknown
	if retry := time.Now().Add(resizeRetryDelay); again.IsZero() || retry.Before(again) {
		again = retry
	}
	return limits, again
}

// podMemoryPrefix is the prefix of errors about the memory limit of a whole pod.
const podMemoryPrefix = "attempting to set pod memory limit"

// setLimits records the limits that were set on the pod's cgroup.
func (w *worker) setLimits(l cgroup.Limits) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limits = l
}

// resizeRetryDelay is the delay before a memory limit is tried again that was below the pod's usage.
const resizeRetryDelay = 10 * time.Second

// checkMemoryFits returns an error if a memory limit is below the container's usage, because the kernel would kill the
// container.
func (w *worker) checkMemoryFits(ctx context.Context, f *pod.Facts, spec *corev1.Container, id string) error {
	limit := spec.Resources.Limits.Memory().Value()
	for _, c := range f.Containers {
		if c.ID == id && (limit == 0 || c.Size != nil && c.Size.Memory > 0 && limit >= c.Size.Memory) {
			return nil
		}
	}
	stats, err := w.k.runtime.ListPodSandboxStats(ctx)
	if err != nil {
		return err
	}
	for _, s := range stats {
		for _, c := range s.GetLinux().GetContainers() {
			used := c.GetMemory().GetUsageBytes().GetValue()
			if used == 0 {
				used = c.GetMemory().GetWorkingSetBytes().GetValue()
			}
			if c.GetAttributes().GetId() == id && int64(used) > limit {
				return fmt.Errorf("attempting to set container %q memory limit (%d) below current usage (%d)",
					spec.Name, limit, used)
			}
		}
	}
	return nil
}

// recordResize records the result of a container's resize.
func (w *worker) recordResize(f *pod.Facts, step pod.Step, err error, now time.Time) {
	// Also delay the next attempt after success, in case the runtime reports success but changes nothing.
	w.resizeRetryAt[step.Container] = now.Add(min(minRetry<<min(w.resizeTries[step.Container], 8), maxRetry))
	w.resizeTries[step.Container]++
	problem := ""
	if err != nil {
		problem = cri.Message(err)
		if problem != f.Resize.Error {
			w.k.recordEvent(f.Pod, corev1.EventTypeWarning, "ResizeError", "%s",
				pod.ResizeMessage("Pod resize error", f.Pod, problem))
		}
	}
	w.updateInbox(func() {
		w.resizeState.Error = problem
		w.refreshRequested = true // the pod's own limits are updated next
	})
}

// recordResizeEvents records an event when all containers of a pod have reached their granted size.
func (w *worker) recordResizeEvents(f *pod.Facts) {
	if f.Resize.Generation == 0 || pod.IsResizing(f) {
		return
	}
	w.mu.Lock()
	done := w.resizeState.Generation == f.Resize.Generation
	if done {
		w.resizeState.Generation, w.resizeState.Error = 0, ""
	}
	w.mu.Unlock()
	if done {
		w.k.recordEvent(f.Pod, corev1.EventTypeNormal, "ResizeCompleted", "%s",
			pod.ResizeMessage("Pod resize completed", f.Pod, ""))
	}
}
