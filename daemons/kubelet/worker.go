package kubelet

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/kubelet/pod"
	"clusterctl/daemons/kubelet/sleep"
)

// worker manages the life of one pod. Only its goroutine decides and changes the state; others leave news in the inbox
// and wake it.
type worker struct {
	k         *Kubelet
	steps     stepRunner
	images    podImages
	firstSeen time.Time
	cancel    context.CancelFunc // ends the worker's goroutine

	inbox inbox

	// The following fields belong to the worker's goroutine.
	view     runtimeView
	volumes  podVolumes
	policies podPolicies
	retry    retries
	resizes  resizeAttempts
	probing  map[string]*runningProbes
	reports  reports
}

// runtimeView is what the runtime last reported about a pod.
type runtimeView struct {
	sandboxes []pod.Sandbox // read by others, guarded by the inbox's mu
	exited    map[string]pod.Container
	known     bool
	askedAt   time.Time
}

// podVolumes is the state of a pod's volumes.
type podVolumes struct {
	prepared  bool
	refreshAt time.Time // when to refresh them
}

// podPolicies is the state of a pod's network policies.
type podPolicies struct {
	sandbox string // ID of the sandbox whose policies are in effect
	problem string // why the last admission failed
}

// reports is what a worker has reported about its pod.
type reports struct {
	startTime time.Time
	wasReady  bool
	backoff   map[string]string // by container: the back-off that an event last reported
}

func newWorker(k *Kubelet, p *corev1.Pod) *worker {
	return &worker{
		k: k, steps: stepRunner{k}, images: podImages{k}, firstSeen: time.Now(),
		inbox: inbox{
			wake: make(chan struct{}, 1), pod: p, size: podSize{desired: p, allocated: pod.SpecAllocation(p)},
			hasRuntimeChange: true, probes: map[string]pod.Probe{},
		},
		view: runtimeView{exited: map[string]pod.Container{}},
		retry: retries{waits: map[string]pod.Wait{}, backoff: map[string]pod.Backoff{},
			pulls: map[string]pod.Backoff{}},
		resizes: resizeAttempts{notBefore: map[string]time.Time{}, tries: map[string]int{}},
		probing: map[string]*runningProbes{},
		reports: reports{backoff: map[string]string{}},
	}
}

// update gives the worker a newer version of its pod.
func (w *worker) update(p *corev1.Pod) {
	w.inbox.update(func() {
		if !equality.Semantic.DeepEqual(w.inbox.pod.Labels, p.Labels) ||
			!equality.Semantic.DeepEqual(w.inbox.pod.Annotations, p.Annotations) ||
			w.k.limits().podCgroupLimits(w.inbox.pod) != w.k.limits().podCgroupLimits(p) {
			w.inbox.refreshRequested = true
		}
		w.inbox.pod = p
	})
}

// facts returns a snapshot of everything that is known about the pod.
func (w *worker) facts() *pod.Facts {
	b := &w.inbox
	b.mu.Lock()
	defer b.mu.Unlock()
	f := &pod.Facts{
		Pod: b.pod, Now: time.Now(), Removed: b.removed, Sandboxes: w.view.sandboxes, Containers: b.containers,
		Prepared: w.volumes.prepared, Released: b.released, DiscardRequested: b.discardRequested,
		Probes: maps.Clone(b.probes), Waits: w.retry.waits, Backoff: w.retry.backoff, Evicted: b.evicted,
		Resize: b.size.resize, HostIPs: w.k.ips, RuntimeName: w.k.runtimeName,
	}
	if b.needsRetry && !w.volumes.prepared {
		delete(w.retry.waits, "")
	}
	b.needsRetry = false
	f.Devices = w.k.nodeDevices().deviceStatuses(b.pod)
	w.resizes.begin(b.size.resize.Generation)
	f.Resize.NotBefore = maps.Clone(w.resizes.notBefore)
	f.Resize.IsPodPending = b.size.resize.Generation != 0 && b.size.limits != w.k.limits().podCgroupLimits(b.pod)
	if f.AdmittedSandbox = w.policies.sandbox; w.k.cfg.NetworkPolicySocket == "" && len(f.Sandboxes) > 0 {
		f.AdmittedSandbox = f.Sandboxes[0].ID // no network policy service is configured
	}
	return f
}

// runningStep is a running step.
type runningStep struct {
	step        pod.Step
	start       time.Time
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
		if now == nil || time.Since(now.start) > observeDelay {
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
		until := w.volumes.refreshAt
		var done chan stepResult
		if now == nil {
			step := pod.Next(f)
			if f.Now.Before(w.retry.at) {
				step = pod.Step{Kind: pod.Rest, At: w.retry.at}
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
			if w.inbox.needsObserve() {
				until = now.start.Add(observeDelay + time.Millisecond)
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
		case <-w.inbox.wake:
		case <-alarm:
		case o := <-done:
			now.cancel()
			if w.recordResult(f, now.step, o) {
				return
			}
			now = nil
			w.inbox.update(func() { w.inbox.hasRuntimeChange = true })
		}
		if timer != nil {
			timer.Stop()
		}
	}
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
		step: step, start: time.Now(), cancel: cancel, done: make(chan stepResult, 1), grace: step.Grace,
		removed: f.Removed || f.Pod.DeletionTimestamp != nil ||
			f.Evicted != nil, hangCheckAt: time.Now().Add(w.k.hangTimeout),
	}
	w.k.env.Log.Debug("step", "pod", podName(f.Pod), "step", step.Kind, "container", step.Container)
	if step.Kind == pod.Prepare {
		w.inbox.mu.Lock()
		w.inbox.refreshRequested = false
		w.inbox.mu.Unlock()
		w.volumes.refreshAt = time.Time{}
	}
	go func() {
		out := w.runStep(ctx, f, step)
		w.k.metrics.RecordStep(f, step, u.start)
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
		w.k.events.record(f.Pod, corev1.EventTypeWarning, reason,
			"%s takes longer than %s: its disk or server hangs, or another pod's operation on "+
				"it", what, w.k.hangTimeout)
	}
}

// observe asks the runtime for the pod's state if there is news. It reports whether the worker knows the current state.
func (w *worker) observe(ctx context.Context) bool {
	w.inbox.mu.Lock()
	dirty := w.inbox.hasRuntimeChange
	w.inbox.hasRuntimeChange = false
	p := w.inbox.pod
	w.inbox.mu.Unlock()
	if !dirty && w.view.known {
		return true
	}
	o := cri.Observer{Runtime: w.k.runtime, Message: func(s *criapi.ContainerStatus) string {
		return cri.TerminationMessage(s, w.k.logs.Tail)
	}}
	requestedAt := time.Now()
	sandboxes, containers, err := o.Pod(ctx, string(p.UID), w.view.exited)
	w.k.metrics.RecordObserve(requestedAt, w.view.askedAt)
	w.view.askedAt = requestedAt
	if err != nil {
		if ctx.Err() == nil {
			w.k.env.Log.Warn("ask the runtime about a pod", "pod", podName(p), "error", err)
		}
		w.inbox.mu.Lock()
		w.inbox.hasRuntimeChange = true
		w.inbox.mu.Unlock()
		return false
	}
	if !w.view.known && len(sandboxes) > 0 && sandboxes[0].Ready {
		// An earlier kubelet has prepared the pod. Its volumes are refreshed when no other step is due.
		w.volumes.prepared = true
		w.volumes.refreshAt = time.Now()
	}
	w.inbox.mu.Lock()
	w.view.sandboxes, w.inbox.containers, w.view.known = sandboxes, containers, true
	w.inbox.mu.Unlock()
	w.removeEndedProbes()
	return true
}

// needsRefresh reports whether the volumes must be refreshed.
func (w *worker) needsRefresh(f *pod.Facts) bool {
	if !w.volumes.prepared || w.inbox.released || f.Removed || f.Pod.DeletionTimestamp != nil {
		return false
	}
	w.inbox.mu.Lock()
	defer w.inbox.mu.Unlock()
	return w.inbox.refreshRequested || !w.volumes.refreshAt.IsZero() && !f.Now.Before(w.volumes.refreshAt)
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
		if w.reports.startTime.IsZero() {
			w.reports.startTime = status.StartTime.Time
		}
		status.StartTime.Time = w.reports.startTime
	}
	w.recordBackoffEvents(f.Pod, &status)
	for _, c := range status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && !w.reports.wasReady {
			w.reports.wasReady = true
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
			if before := w.reports.backoff[c.Name]; before == reason || spec == nil {
				continue
			}
			w.reports.backoff[c.Name] = reason
			switch {
			case strings.HasPrefix(reason, "CrashLoop"):
				w.k.events.recordContainer(p, spec, corev1.EventTypeWarning, "BackOff",
					"Back-off restarting failed container %s in pod %s_%s(%s)", c.Name, p.Name, p.Namespace, p.UID)
			case reason != "":
				w.k.events.recordContainer(p, spec, corev1.EventTypeNormal, "BackOff", "Back-off pulling image %q",
					cmp.Or(w.retry.waits[c.Name].Image, spec.Image))
				w.k.events.recordContainer(p, spec, corev1.EventTypeWarning, "Failed", "Error: ImagePullBackOff")
			}
		}
	}
}

func podName(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }
