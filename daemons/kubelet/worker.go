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
)

// worker manages the life of one pod. Only its goroutine decides and changes the state; others leave news in the inbox
// and wake it.
type worker struct {
	k    *Kubelet
	wake chan struct{}

	mu         sync.Mutex     // guards the inbox, which follows
	pod        *corev1.Pod    // with the granted size
	desired    *corev1.Pod    // as its source has it
	given      pod.Allocation // size granted to the containers
	sizing     pod.Resize     // state of a pending or failed resize
	removed    bool
	dirty      bool // the runtime has reported a change
	refresh    bool // volumes must be refreshed
	hurry      bool // an object that the volumes wait for has changed: retry at once
	evicted    *pod.End
	evictedAt  time.Time            // when it was evicted because of a shortage
	gaveBack   bool                 // eviction has seen that nothing of it remains to be freed
	discard    bool                 // the machine needs the disk space of the ended containers
	probes     map[string]pod.Probe // by container ID
	containers []pod.Container      // containers and released are changed only by the worker's goroutine
	released   bool

	// The following fields belong to the worker's goroutine.
	sandboxes []pod.Sandbox
	exited    map[string]pod.Container
	observed  bool
	asked     time.Time // when the runtime was last asked
	prepared  bool
	admitted  string        // ID of the sandbox whose network policies are in effect
	refused   string        // why the last admission failed
	limits    cgroup.Limits // of the pod's cgroup, as last written; changed by the running step, guarded by mu
	again     time.Time     // when to refresh the volumes
	retries   int           // failed attempts that concern the whole pod
	hold      time.Time     // no step is retried before this time
	waits     map[string]pod.Wait
	backoff   map[string]pod.Backoff
	pulls     map[string]pod.Backoff // by image
	started   time.Time
	probing   map[string]*probing
	firstSeen time.Time
	wasReady  bool
	held      map[string]time.Time // by container: no resize before this time
	tries     map[string]int       // by container: number of resize attempts
	resized   int64                // the resize to which held and tries belong
	backing   map[string]string    // by container: the back-off that an event last reported
}

func newWorker(k *Kubelet, p *corev1.Pod) *worker {
	return &worker{
		k: k, wake: make(chan struct{}, 1), pod: p, desired: p, given: pod.Wanted(p), dirty: true,
		firstSeen: time.Now(),
		probes:    map[string]pod.Probe{}, exited: map[string]pod.Container{}, waits: map[string]pod.Wait{},
		backoff: map[string]pod.Backoff{}, backing: map[string]string{}, pulls: map[string]pod.Backoff{},
		probing: map[string]*probing{},
		held:    map[string]time.Time{}, tries: map[string]int{},
	}
}

// tell changes the inbox and wakes the worker.
func (w *worker) tell(change func()) {
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
	w.tell(func() {
		if !equality.Semantic.DeepEqual(w.pod.Labels, p.Labels) ||
			!equality.Semantic.DeepEqual(w.pod.Annotations, p.Annotations) ||
			w.k.limits(w.pod) != w.k.limits(p) {
			w.refresh = true
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
		Prepared: w.prepared, Released: w.released, Discard: w.discard, Probes: maps.Clone(w.probes), Waits: w.waits,
		Backoff: w.backoff,
		Evicted: w.evicted, Resize: w.sizing, HostIPs: w.k.ips, RuntimeName: w.k.engine,
	}
	if w.hurry && !w.prepared {
		delete(w.waits, "")
	}
	w.hurry = false
	f.Devices = w.k.deviceStatuses(w.pod)
	if w.sizing.Begun != w.resized {
		w.resized = w.sizing.Begun
		clear(w.held)
		clear(w.tries)
	}
	f.Resize.Held = maps.Clone(w.held)
	f.Resize.Whole = w.sizing.Begun != 0 && w.limits != w.k.limits(w.pod)
	if f.Admitted = w.admitted; w.k.cfg.NetworkPolicySocket == "" && len(f.Sandboxes) > 0 {
		f.Admitted = f.Sandboxes[0].ID // no network policy service is configured
	}
	return f
}

// underway is a running step.
type underway struct {
	step    pod.Step
	began   time.Time
	cancel  context.CancelFunc
	done    chan outcome
	removed bool // the pod was already terminating when the step started
	grace   time.Duration
	look    time.Time // when to check whether volumes hang
}

// quiet is how long a step may run before the runtime is asked again in the meantime. Most steps end sooner, and the
// runtime is asked then.
const quiet = 300 * time.Millisecond

// run is the worker's goroutine. It returns when the pod is gone or ctx ends.
func (w *worker) run(ctx context.Context) {
	var now *underway
	failures := 0
	defer w.stopProbes()
	for {
		if now == nil || time.Since(now.began) > quiet {
			if !w.observe(ctx) {
				failures++
				if !pause(ctx, min(100*time.Millisecond<<min(failures, 6), 5*time.Second)) {
					w.abandon(now)
					return
				}
				continue
			}
			failures = 0
		}
		f := w.facts()
		shown := begun(f, now)
		w.publish(shown)
		w.syncProbes(ctx, shown)
		until := w.again
		var done chan outcome
		if now == nil {
			step := pod.Next(f)
			if f.Now.Before(w.hold) {
				step = pod.Step{Kind: pod.Rest, At: w.hold}
			} else if step.Kind == pod.Rest && w.refreshDue(f) {
				step = pod.Step{Kind: pod.Prepare}
			}
			if step.Kind == pod.Rest {
				if !step.At.IsZero() && (until.IsZero() || step.At.Before(until)) {
					until = step.At
				}
			} else {
				now = w.begin(ctx, f, step)
			}
		} else if superseded(now, f) {
			now.cancel()
		}
		if now != nil {
			done = now.done
			until = time.Time{}
			if !time.Now().Before(now.look) {
				w.tellHanging(f)
				now.look = time.Now().Add(4 * w.k.patience)
			}
			until = now.look
			if w.hasNews() {
				until = now.began.Add(quiet + time.Millisecond)
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
			w.abandon(now)
			return
		case <-w.wake:
		case <-alarm:
		case o := <-done:
			now.cancel()
			if w.settle(f, now.step, o) {
				return
			}
			now = nil
			w.tell(func() { w.dirty = true })
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

func (w *worker) hasNews() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dirty
}

// begun returns the facts without the container that is being started. That container does not count as running and is
// not probed until its postStart hook has ended.
func begun(f *pod.Facts, u *underway) *pod.Facts {
	if u == nil || u.step.Kind != pod.Start {
		return f
	}
	without := *f
	without.Containers = slices.DeleteFunc(slices.Clone(f.Containers), func(c pod.Container) bool {
		return c.Name == u.step.Container && c.SandboxID == u.step.SandboxID && c.Attempt == u.step.Attempt
	})
	return &without
}

// superseded reports whether a running step should be canceled: because the pod must terminate, or because it must be
// killed with a shorter grace period.
func superseded(u *underway, f *pod.Facts) bool {
	going := f.Removed || f.Pod.DeletionTimestamp != nil && !pod.IsMirror(f.Pod) || f.Evicted != nil
	switch u.step.Kind {
	case pod.Start, pod.Admit, pod.RunSandbox, pod.Prepare:
		return going && !u.removed
	case pod.KillPod, pod.Kill:
		return going && pod.Grace(f) < u.grace
	}
	return false
}

// lastWait is how long a stopping kubelet waits for its calls to the runtime.
const lastWait = 5 * time.Second

// abandon cancels a running step because the kubelet stops. The runtime may or may not have completed the step. The
// next kubelet observes the result.
func (w *worker) abandon(u *underway) {
	if u == nil {
		return
	}
	u.cancel()
	select {
	case <-u.done:
	case <-time.After(lastWait):
	}
}

// begin runs a step in a new goroutine.
func (w *worker) begin(ctx context.Context, f *pod.Facts, step pod.Step) *underway {
	ctx, cancel := context.WithCancel(ctx)
	u := &underway{
		step: step, began: time.Now(), cancel: cancel, done: make(chan outcome, 1), grace: step.Grace,
		removed: f.Removed || f.Pod.DeletionTimestamp != nil || f.Evicted != nil, look: time.Now().Add(w.k.patience),
	}
	w.k.env.Log.Debug("step", "pod", key(f.Pod), "step", step.Kind, "container", step.Container)
	if step.Kind == pod.Prepare {
		w.mu.Lock()
		w.refresh = false
		w.mu.Unlock()
		w.again = time.Time{}
	}
	go func() {
		out := w.do(ctx, f, step)
		w.k.metrics.worked(f, step, u.began)
		u.done <- out
	}()
	return u
}

// tellHanging records events for operations on the pod's volumes that have taken so long that they hang.
func (w *worker) tellHanging(f *pod.Facts) {
	hanging := w.k.volumes.Hanging(string(f.Pod.UID), w.k.patience)
	for _, what := range hanging {
		reason := "FailedMount"
		if strings.HasPrefix(what, "Unmount") {
			reason = "FailedUnMount"
		}
		w.k.event(f.Pod, corev1.EventTypeWarning, reason,
			"%s takes longer than %s: its disk or server hangs, or another pod's operation on it", what, w.k.patience)
	}
}

// observe asks the runtime for the pod's state if there is news. It reports whether the worker knows the current state.
func (w *worker) observe(ctx context.Context) bool {
	w.mu.Lock()
	dirty := w.dirty
	w.dirty = false
	p := w.pod
	w.mu.Unlock()
	if !dirty && w.observed {
		return true
	}
	o := cri.Observer{Runtime: w.k.runtime, Message: func(s *criapi.ContainerStatus) string {
		return cri.TerminationMessage(s, w.k.tailLog)
	}}
	asked := time.Now()
	sandboxes, containers, err := o.Pod(ctx, string(p.UID), w.exited)
	w.k.metrics.asked(asked, w.asked)
	w.asked = asked
	if err != nil {
		if ctx.Err() == nil {
			w.k.env.Log.Warn("ask the runtime about a pod", "pod", key(p), "error", err)
		}
		w.mu.Lock()
		w.dirty = true
		w.mu.Unlock()
		return false
	}
	if !w.observed && len(sandboxes) > 0 && sandboxes[0].Ready {
		// An earlier kubelet has prepared the pod. Its volumes are refreshed when no other step is due.
		w.prepared = true
		w.again = time.Now()
	}
	w.mu.Lock()
	w.sandboxes, w.containers, w.observed = sandboxes, containers, true
	w.mu.Unlock()
	w.forgetProbes()
	return true
}

// refreshDue reports whether the volumes must be refreshed.
func (w *worker) refreshDue(f *pod.Facts) bool {
	if !w.prepared || w.released || f.Removed || f.Pod.DeletionTimestamp != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refresh || !w.again.IsZero() && !f.Now.Before(w.again)
}

// publish writes the pod's status to the API if it has changed.
func (w *worker) publish(f *pod.Facts) {
	if f.Removed {
		return
	}
	target := f.Pod
	if pod.Static(f.Pod) {
		if target = w.k.mirrors.of(f.Pod); target == nil {
			return
		}
	}
	status := pod.Status(f)
	w.tellResized(f)
	if f.Pod.Status.StartTime == nil {
		if w.started.IsZero() {
			w.started = status.StartTime.Time
		}
		status.StartTime.Time = w.started
	}
	w.tellBackoff(f.Pod, &status)
	for _, c := range status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && !w.wasReady {
			w.wasReady = true
			w.k.metrics.startSeconds.Observe(time.Since(w.firstSeen).Seconds())
		}
	}
	w.k.status.publish(target, status)
}

// tellBackoff records an event when a container starts to wait for another attempt.
func (w *worker) tellBackoff(p *corev1.Pod, status *corev1.PodStatus) {
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for _, c := range list {
			reason := ""
			if c.State.Waiting != nil && strings.HasSuffix(c.State.Waiting.Reason, "BackOff") {
				reason = c.State.Waiting.Reason + c.State.Waiting.Message
			}
			spec := pod.Find(p, c.Name)
			if was := w.backing[c.Name]; was == reason || spec == nil {
				continue
			}
			w.backing[c.Name] = reason
			switch {
			case strings.HasPrefix(reason, "CrashLoop"):
				w.k.containerEvent(
					p,
					spec,
					corev1.EventTypeWarning,
					"BackOff",
					"Back-off restarting failed container %s in pod %s_%s(%s)",
					c.Name,
					p.Name,
					p.Namespace,
					p.UID,
				)
			case reason != "":
				w.k.containerEvent(p, spec, corev1.EventTypeNormal, "BackOff", "Back-off pulling image %q",
					cmp.Or(w.waits[c.Name].Image, spec.Image))
				w.k.containerEvent(p, spec, corev1.EventTypeWarning, "Failed", "Error: ImagePullBackOff")
			}
		}
	}
}

func key(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }
