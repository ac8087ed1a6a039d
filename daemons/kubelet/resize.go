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
	b := &w.inbox
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.size.desired
	b.size.desired = p
	if pod.IsStatic(p) {
		return p
	}
	wanted := pod.SpecAllocation(p)
	if equality.Semantic.DeepEqual(wanted, b.size.allocated) {
		b.size.resize.Pending, b.size.resize.Message = "", ""
		return p
	}
	if p.DeletionTimestamp != nil || k.agent.Node() == nil {
		return pod.WithAllocation(p, b.size.allocated)
	}
	b.mu.Unlock()
	reason, message := k.checkResize(p)
	b.mu.Lock()
	if reason == "" {
		b.size.allocated, b.size.resize = wanted, pod.Resize{Generation: max(p.Generation, 1)}
		k.events.record(p, corev1.EventTypeNormal, "ResizeStarted", "%s",
			pod.ResizeMessage("Pod resize started", p, ""))
		return p
	}
	if b.size.resize.Pending != reason || before.Generation != p.Generation {
		k.events.record(p, corev1.EventTypeWarning, "Resize"+reason, "%s",
			pod.ResizeMessage("Pod resize "+reason, p, message))
	}
	b.size.resize.Pending, b.size.resize.Message = reason, message
	return pod.WithAllocation(p, b.size.allocated)
}

// checkResize returns why the node cannot grant the size in a pod's spec, or "" if it can. The caller holds k.pods.mu.
func (k *Kubelet) checkResize(p *corev1.Pod) (reason, message string) {
	requests, allocatable := resource.PodRequests(p, resource.PodResourcesOptions{}), k.agent.Node().Status.Allocatable
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceCPU} {
		want, current := requests[name], allocatable[name]
		if _, ok := allocatable[name]; !ok || want.Cmp(current) <= 0 {
			continue
		}
		requested, capacity := want.Value(), current.Value()
		if name == corev1.ResourceCPU {
			requested, capacity = want.MilliValue(), current.MilliValue()
		}
		return corev1.PodReasonInfeasible, fmt.Sprintf(
			"Node didn't have enough capacity: %s, requested: %d, capacity: %d", name, requested, capacity)
	}
	if what, message := k.pods.missingResource(p, allocatable); what != "" {
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
		w.inbox.mu.Lock()
		isResizing := !equality.Semantic.DeepEqual(pod.SpecAllocation(w.inbox.size.desired), w.inbox.size.allocated)
		if isResizing && w.inbox.evicted == nil && !w.inbox.removed {
			waiting = append(waiting, w)
		}
		w.inbox.mu.Unlock()
	}
	priority := func(w *worker) int32 {
		if p := w.inbox.size.desired.Spec.Priority; p != nil {
			return *p
		}
		return 0
	}
	slices.SortFunc(waiting, func(a, b *worker) int {
		return cmp.Or(cmp.Compare(priority(b), priority(a)), a.firstSeen.Compare(b.firstSeen))
	})
	for _, w := range waiting {
		w.update(k.allocate(w, w.inbox.size.desired))
	}
}

// resizeContainer sets the CPU and memory of one container to the size granted to its pod.
func (w *worker) resizeContainer(ctx context.Context, f *pod.Facts, step pod.Step) error {
	spec := pod.Find(f.Pod, step.Container)
	if err := w.steps.checkMemoryFits(ctx, f, spec, step.ID); err != nil {
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
	if w.inbox.size.limits == (cgroup.Limits{}) || limits == w.inbox.size.limits {
		return nil // unchanged, or set by an earlier kubelet, whose containers fit
	}
	if limits = limits.Max(w.inbox.size.limits); limits == w.inbox.size.limits {
		return nil
	}
	if err := w.k.cgroups.Make(w.k.cgroups.Parent(f.Pod), limits); err != nil {
		return fmt.Errorf("resize the pod's cgroup: %w", err)
	}
	w.setLimits(limits)
	w.inbox.update(func() { w.inbox.refreshRequested = true }) // sets the final limits
	return nil
}

// fitLimits returns the limits that can be set on the pod's cgroup now, and when to try again. A memory limit below the
// current usage has to wait, because the kernel would kill processes of the pod.
func (w *worker) fitLimits(ctx context.Context, f *pod.Facts, limits cgroup.Limits, again time.Time) (cgroup.Limits,
	time.Time) {
	before := w.inbox.size.limits.MemoryLimit
	// A pod of an earlier kubelet has the limit that it was given, unless it is being resized.
	fits := w.inbox.size.limits == (cgroup.Limits{}) && f.Resize.Generation == 0
	if fits || limits.MemoryLimit == 0 || before != 0 && limits.MemoryLimit >= before {
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
		w.k.events.record(f.Pod, corev1.EventTypeWarning, "ResizeError", "%s",
			pod.ResizeMessage("Pod resize error", f.Pod, problem))
		w.inbox.update(func() { w.inbox.size.resize.Error = problem })
	case strings.HasPrefix(f.Resize.Error, podMemoryPrefix):
		w.inbox.update(func() { w.inbox.size.resize.Error = "" })
	}
	if problem == "" {
		return limits, again
	}
	limits.MemoryLimit = before // zero, which sets no limit, if the old limit is unknown
	if retry := time.Now().Add(resizeRetryDelay); again.IsZero() || retry.Before(again) {
		again = retry
	}
	return limits, again
}

// podMemoryPrefix is the prefix of errors about the memory limit of a whole pod.
const podMemoryPrefix = "attempting to set pod memory limit"

// setLimits records the limits that were set on the pod's cgroup.
func (w *worker) setLimits(l cgroup.Limits) {
	w.inbox.mu.Lock()
	defer w.inbox.mu.Unlock()
	w.inbox.size.limits = l
}

// resizeRetryDelay is the delay before a memory limit is tried again that was below the pod's usage.
const resizeRetryDelay = 10 * time.Second

// checkMemoryFits returns an error if a memory limit is below the container's usage, because the kernel would kill the
// container.
func (r stepRunner) checkMemoryFits(ctx context.Context, f *pod.Facts, spec *corev1.Container, id string) error {
	limit := spec.Resources.Limits.Memory().Value()
	for _, c := range f.Containers {
		if c.ID == id && (limit == 0 || c.Size != nil && c.Size.Memory > 0 && limit >= c.Size.Memory) {
			return nil
		}
	}
	stats, err := r.k.runtime.ListPodSandboxStats(ctx)
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

// resizeAttempts are the attempts to resize the containers of a pod.
type resizeAttempts struct {
	generation int64                // the resize that is under way
	notBefore  map[string]time.Time // by container: no resize before this time
	tries      map[string]int       // by container: number of resize attempts
}

// begin drops the attempts if they belong to another resize than that of a generation.
func (r *resizeAttempts) begin(generation int64) {
	if generation != r.generation {
		r.generation = generation
		clear(r.notBefore)
		clear(r.tries)
	}
}

// delay delays the next attempt for a container. It does so after success, too, in case the runtime reports success but
// changes nothing.
func (r *resizeAttempts) delay(container string, now time.Time) {
	r.notBefore[container] = now.Add(min(minRetry<<min(r.tries[container], 8), maxRetry))
	r.tries[container]++
}

// recordResize records the result of a container's resize.
func (w *worker) recordResize(f *pod.Facts, step pod.Step, err error, now time.Time) {
	w.resizes.delay(step.Container, now)
	problem := ""
	if err != nil {
		problem = cri.Message(err)
		if problem != f.Resize.Error {
			w.k.events.record(f.Pod, corev1.EventTypeWarning, "ResizeError", "%s",
				pod.ResizeMessage("Pod resize error", f.Pod, problem))
		}
	}
	w.inbox.update(func() {
		w.inbox.size.resize.Error = problem
		w.inbox.refreshRequested = true // the pod's own limits are updated next
	})
}

// recordResizeEvents records an event when all containers of a pod have reached their granted size.
func (w *worker) recordResizeEvents(f *pod.Facts) {
	if f.Resize.Generation == 0 || pod.IsResizing(f) {
		return
	}
	w.inbox.mu.Lock()
	done := w.inbox.size.resize.Generation == f.Resize.Generation
	if done {
		w.inbox.size.resize.Generation, w.inbox.size.resize.Error = 0, ""
	}
	w.inbox.mu.Unlock()
	if done {
		w.k.events.record(f.Pod, corev1.EventTypeNormal, "ResizeCompleted", "%s",
			pod.ResizeMessage("Pod resize completed", f.Pod, ""))
	}
}
