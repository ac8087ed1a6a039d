package kubelet

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/cgroup"
	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/kubelet/pod"
	"clusterctl/daemons/kubelet/sleep"
)

// worker manages the life of one pod. Only its goroutine decides and changes the state; others leave news in the inbox
// and wake it.
type worker struct {
	k    *Kubelet
	wake chan struct{}

	mu               sync.Mutex     // guards the inbox, which follows
	pod              *corev1.Pod    // with the granted size
	desired          *corev1.Pod    // as its source has it
	allocated        pod.Allocation // size granted to the containers
	resizeState      pod.Resize     // state of a pending or failed resize
	removed          bool
	hasRuntimeChange bool // the runtime has reported a change
	refreshRequested bool // volumes must be refreshed
	needsRetry       bool // an object that the volumes wait for has changed: retry at once
	evicted          *pod.End
	evictedAt        time.Time            // when it was evicted because of a shortage
	discardRequested bool                 // the machine needs the disk space of the ended containers
	probes           map[string]pod.Probe // by container ID
	containers       []pod.Container      // containers and released are changed only by the worker's goroutine
	released         bool

	// The following fields belong to the worker's goroutine.
	sandboxes       []pod.Sandbox
	exited          map[string]pod.Container
	observed        bool
	observedAt      time.Time // when the runtime was last asked
	prepared        bool
	admitted        string        // ID of the sandbox whose network policies are in effect
	admissionError  string        // why the last admission failed
	limits          cgroup.Limits // of the pod's cgroup, as last written; changed by the running step, guarded by mu
	refreshAt       time.Time     // when to refresh the volumes
	retries         int           // failed attempts that concern the whole pod
	retryAt         time.Time     // no step is retried before this time
	waits           map[string]pod.Wait
	backoff         map[string]pod.Backoff
	pulls           map[string]pod.Backoff // by image
	started         time.Time
	probing         map[string]*runningProbes
	firstSeen       time.Time
	wasReady        bool
	resizeRetryAt   map[string]time.Time // by container: no resize before this time
	resizeTries     map[string]int       // by container: number of resize attempts
	resized         int64                // the resize of resizeRetryAt and resizeTries
	reportedBackoff map[string]string    // by container: the back-off that an event last reported
}

func newWorker(k *Kubelet, p *corev1.Pod) *worker {
	return &worker{
		k: k, wake: make(chan struct{}, 1), pod: p, desired: p, allocated: pod.SpecAllocation(p),
		hasRuntimeChange: true,
		firstSeen:        time.Now(),
		probes:           map[string]pod.Probe{}, exited: map[string]pod.Container{}, waits: map[string]pod.Wait{},
		backoff: map[string]pod.Backoff{}, reportedBackoff: map[string]string{}, pulls: map[string]pod.Backoff{},
		probing:       map[string]*runningProbes{},
		resizeRetryAt: map[string]time.Time{}, resizeTries: map[string]int{},
	}
}

// updateInbox changes the inbox and wakes the worker.
func (w *worker) updateInbox(change func()) {
	w.mu.Lock()
	change()
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// update gives the worker a newer version of its pod.
func (w *worker) update(p *corev1.Pod) {
	w.updateInbox(func() {
		if !equality.Semantic.DeepEqual(w.pod.Labels, p.Labels) ||
			!equality.Semantic.DeepEqual(w.pod.Annotations, p.Annotations) ||
			w.k.limits().podCgroupLimits(w.pod) != w.k.limits().podCgroupLimits(p) {
			w.refreshRequested = true
		}
		w.pod = p
	})
}

// facts returns a snapshot of everything that is known about the pod.
func (w *worker) facts() *pod.Facts {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := &pod.Facts{
		Pod: w.pod, Now: time.Now(), Removed: w.removed, Sandboxes: w.sandboxes, Containers: w.containers,
		Prepared: w.prepared, Released: w.released, DiscardRequested: w.discardRequested, Probes: maps.Clone(w.probes),
		Waits:   w.waits,
		Backoff: w.backoff,
		Evicted: w.evicted, Resize: w.resizeState, HostIPs: w.k.ips, RuntimeName: w.k.runtimeName,
	}
	if w.needsRetry && !w.prepared {
		delete(w.waits, "")
	}
	w.needsRetry = false
	f.Devices = w.k.nodeDevices().deviceStatuses(w.pod)
	if w.resizeState.Generation != w.resized {
		w.resized = w.resizeState.Generation
		clear(w.resizeRetryAt)
		clear(w.resizeTries)
	}
	f.Resize.NotBefore = maps.Clone(w.resizeRetryAt)
	f.Resize.IsPodPending = w.resizeState.Generation != 0 && w.limits != w.k.limits().podCgroupLimits(w.pod)
	if f.AdmittedSandbox = w.admitted; w.k.cfg.NetworkPolicySocket == "" && len(f.Sandboxes) > 0 {
		f.AdmittedSandbox = f.Sandboxes[0].ID // no network policy service is configured
	}
	return f
}

// runningStep is a running step.
type runningStep struct {
	step        pod.Step
	began       time.Time
	cancel      context.CancelFunc
	done        chan stepResult
	removed     bool // the pod was already terminating when the step started
	grace       time.Duration
	hangCheckAt time.Time // when to check whether volumes hang
}

// observeDelay is how long a step may run before the runtime is asked again in the meantime. Most steps end sooner, and
// the runtime is asked then.
const observeDelay = 300 * time.Millisecond

// run is the worker's goroutine. It returns when the pod is gone or ctx ends.
func (w *worker) run(ctx context.Context) {
	var now *runningStep
	failures := 0
	defer w.stopProbes()
	for {
		if now == nil || time.Since(now.began) > observeDelay {
			if !w.observe(ctx) {
				failures++
				if !sleep.For(ctx, min(100*time.Millisecond<<min(failures, 6), 5*time.Second)) {
					w.cancelStep(now)
					return
				}
				continue
			}
			failures = 0
		}
		f := w.facts()
		shown := withoutStarting(f, now)
		w.publishStatus(shown)
		w.syncProbes(ctx, shown)
		until := w.refreshAt
		var done chan stepResult
		if now == nil {
			step := pod.Next(f)
			if f.Now.Before(w.retryAt) {
				step = pod.Step{Kind: pod.Rest, At: w.retryAt}
			} else if step.Kind == pod.Rest && w.needsRefresh(f) {
				step = pod.Step{Kind: pod.Prepare}
			}
			if step.Kind == pod.Rest {
				if !step.At.IsZero() && (until.IsZero() || step.At.Before(until)) {
					until = step.At
				}
			} else {
				now = w.beginStep(ctx, f, step)
			}
		} else if needsCancel(now, f) {
			now.cancel()
		}
		if now != nil {
			done = now.done
			until = time.Time{}
			if !time.Now().Before(now.hangCheckAt) {
				w.recordHangingEvents(f)
				now.hangCheckAt = time.Now().Add(4 * w.k.hangTimeout)
			}
			until = now.hangCheckAt
			if w.needsObserve() {
				until = now.began.Add(observeDelay + time.Millisecond)
			}
		}
		var alarm <-chan time.Time
		var timer *time.Timer
		if !until.IsZero() {
			timer = time.NewTimer(max(time.Until(until), time.Millisecond))
			alarm = timer.C
		}
		select {
		case <-ctx.Done():
			w.cancelStep(now)
			return
		case <-w.wake:
		case <-alarm:
		case o := <-done:
			now.cancel()
			if w.recordResult(f, now.step, o) {
				return
			}
			now = nil
			w.updateInbox(func() { w.hasRuntimeChange = true })
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

func (w *worker) needsObserve() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hasRuntimeChange
}

// withoutStarting returns the facts without the container that is being started. That container does not count as
// running and is not probed until its postStart hook has ended.
func withoutStarting(f *pod.Facts, u *runningStep) *pod.Facts {
	if u == nil || u.step.Kind != pod.Start {
		return f
	}
	without := *f
	without.Containers = slices.DeleteFunc(slices.Clone(f.Containers), func(c pod.Container) bool {
		return c.Name == u.step.Container && c.SandboxID == u.step.SandboxID && c.Attempt == u.step.Attempt
	})
	return &without
}

// needsCancel reports whether a running step should be canceled: because the pod must terminate, or because it must be
// killed with a shorter grace period.
func needsCancel(u *runningStep, f *pod.Facts) bool {
	going := f.Removed || f.Pod.DeletionTimestamp != nil && !pod.IsMirror(f.Pod) || f.Evicted != nil
	switch u.step.Kind {
	case pod.Start, pod.Admit, pod.RunSandbox, pod.Prepare:
		return going && !u.removed
	case pod.KillPod, pod.Kill:
		return going && pod.Grace(f) < u.grace
	}
	return false
}

// stopTimeout is how long a stopping kubelet waits for its calls to the runtime.
const stopTimeout = 5 * time.Second

// cancelStep cancels a running step because the kubelet stops. The runtime may or may not have completed the step. The
// next kubelet observes the result.
func (w *worker) cancelStep(u *runningStep) {
	if u == nil {
		return
	}
	u.cancel()
	select {
	case <-u.done:
	case <-time.After(stopTimeout):
	}
}

// beginStep runs a step in a new goroutine.
func (w *worker) beginStep(ctx context.Context, f *pod.Facts, step pod.Step) *runningStep {
	ctx, cancel := context.WithCancel(ctx)
	u := &runningStep{
		step: step, began: time.Now(), cancel: cancel, done: make(chan stepResult, 1), grace: step.Grace,
		removed: f.Removed || f.Pod.DeletionTimestamp != nil ||
			f.Evicted != nil, hangCheckAt: time.Now().Add(w.k.hangTimeout),
	}
	w.k.env.Log.Debug("step", "pod", podName(f.Pod), "step", step.Kind, "container", step.Container)
	if step.Kind == pod.Prepare {
		w.mu.Lock()
		w.refreshRequested = false
		w.mu.Unlock()
		w.refreshAt = time.Time{}
	}
	go func() {
		out := w.runStep(ctx, f, step)
		w.k.metrics.RecordStep(f, step, u.began)
		u.done <- out
	}()
	return u
}

// recordHangingEvents records events for operations on the pod's volumes that have taken so long that they hang.
func (w *worker) recordHangingEvents(f *pod.Facts) {
	hanging := w.k.volumes.Hanging(string(f.Pod.UID), w.k.hangTimeout)
	for _, what := range hanging {
		reason := "FailedMount"
		if strings.HasPrefix(what, "Unmount") {
			reason = "FailedUnMount"
		}
		w.k.recordEvent(f.Pod, corev1.EventTypeWarning, reason,
			"%s takes longer than %s: its disk or server hangs, or another pod's operation on "+
				"it", what, w.k.hangTimeout)
	}
}

// observe asks the runtime for the pod's state if there is news. It reports whether the worker knows the current state.
func (w *worker) observe(ctx context.Context) bool {
	w.mu.Lock()
	dirty := w.hasRuntimeChange
	w.hasRuntimeChange = false
	p := w.pod
	w.mu.Unlock()
	if !dirty && w.observed {
		return true
	}
	o := cri.Observer{Runtime: w.k.runtime, Message: func(s *criapi.ContainerStatus) string {
		return cri.TerminationMessage(s, w.k.logs.Tail)
	}}
	asked := time.Now()
	sandboxes, containers, err := o.Pod(ctx, string(p.UID), w.exited)
	w.k.metrics.RecordObserve(asked, w.observedAt)
	w.observedAt = asked
	if err != nil {
		if ctx.Err() == nil {
			w.k.env.Log.Warn("ask the runtime about a pod", "pod", podName(p), "error", err)
		}
		w.mu.Lock()
		w.hasRuntimeChange = true
		w.mu.Unlock()
		return false
	}
	if !w.observed && len(sandboxes) > 0 && sandboxes[0].Ready {
		// An earlier kubelet has prepared the pod. Its volumes are refreshed when no other step is due.
		w.prepared = true
		w.refreshAt = time.Now()
	}
	w.mu.Lock()
	w.sandboxes, w.containers, w.observed = sandboxes, containers, true
	w.mu.Unlock()
	w.removeEndedProbes()
	return true
}

// needsRefresh reports whether the volumes must be refreshed.
func (w *worker) needsRefresh(f *pod.Facts) bool {
	if !w.prepared || w.released || f.Removed || f.Pod.DeletionTimestamp != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refreshRequested || !w.refreshAt.IsZero() && !f.Now.Before(w.refreshAt)
}

// publishStatus writes the pod's status to the API if it has changed.
func (w *worker) publishStatus(f *pod.Facts) {
	if f.Removed {
		return
	}
	target := f.Pod
	if pod.IsStatic(f.Pod) {
		if target = w.k.static.mirrors.find(f.Pod); target == nil {
			return
		}
	}
	status := pod.Status(f)
	w.recordResizeEvents(f)
	if f.Pod.Status.StartTime == nil {
		if w.started.IsZero() {
			w.started = status.StartTime.Time
		}
		status.StartTime.Time = w.started
	}
	w.recordBackoffEvents(f.Pod, &status)
	for _, c := range status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && !w.wasReady {
			w.wasReady = true
			w.k.metrics.StartSeconds.Observe(time.Since(w.firstSeen).Seconds())
		}
	}
	w.k.status.queueStatus(target, status)
}

// recordBackoffEvents records an event when a container starts to wait for another attempt.
func (w *worker) recordBackoffEvents(p *corev1.Pod, status *corev1.PodStatus) {
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for _, c := range list {
			reason := ""
			if c.State.Waiting != nil && strings.HasSuffix(c.State.Waiting.Reason, "BackOff") {
				reason = c.State.Waiting.Reason + c.State.Waiting.Message
			}
			spec := pod.Find(p, c.Name)
			if was := w.reportedBackoff[c.Name]; was == reason || spec == nil {
				continue
			}
			w.reportedBackoff[c.Name] = reason
			switch {
			case strings.HasPrefix(reason, "CrashLoop"):
				w.k.recordContainerEvent(p, spec, corev1.EventTypeWarning, "BackOff",
					"Back-off restarting failed container %s in pod %s_%s(%s)", c.Name, p.Name, p.Namespace, p.UID)
			case reason != "":
				w.k.recordContainerEvent(p, spec, corev1.EventTypeNormal, "BackOff", "Back-off pulling image %q",
					cmp.Or(w.waits[c.Name].Image, spec.Image))
				w.k.recordContainerEvent(p, spec, corev1.EventTypeWarning, "Failed", "Error: ImagePullBackOff")
			}
		}
	}
}

func podName(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }
