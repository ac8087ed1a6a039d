package kubelet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/kubelet/pod"
)

// stepResult is the result of a step.
type stepResult struct {
	err       error
	refreshAt time.Time // of Prepare: when to refresh the volumes
}

// startError is why a container did not start, with the reason and message for its status.
type startError struct {
	reason, message string
	image           string // set if the image could not be obtained
	canRetrySoon    bool   // worth retrying soon
}

func (f *startError) Error() string { return f.reason + ": " + f.message }

const (
	minRetry = time.Second
	maxRetry = time.Minute
)

// recordResult records the result of a step, and reports whether the worker is done.
func (w *worker) recordResult(f *pod.Facts, step pod.Step, o stepResult) (done bool) {
	if errors.Is(o.err, context.Canceled) {
		return false
	}
	now := time.Now()
	if o.err != nil {
		w.k.env.Log.Warn("step failed", "pod", podName(f.Pod), "step", step.Kind, "container", step.Container, "error",
			o.err)
	}
	switch step.Kind {
	case pod.Prepare:
		switch {
		case o.err == nil:
			w.volumes.prepared, w.volumes.refreshAt, w.retry.count = true, o.refreshAt, 0
			delete(w.retry.waits, "")
		case w.volumes.prepared:
			w.volumes.refreshAt = now.Add(10 * time.Second) // running containers keep the volumes that they have
		default:
			reason, message := "FailedMount", joinMessages(o.err)
			if d, ok := errors.AsType[*devicesError](o.err); ok {
				reason, message = "FailedPrepareDynamicResources", "Failed to prepare dynamic resources: "+joinMessages(
					d.error,
				)
			}
			w.k.events.record(f.Pod, corev1.EventTypeWarning, reason, "%s", message)
			w.retry.delayPod(now, "ContainerCreating", "")
		}
	case pod.RunSandbox:
		if o.err != nil {
			w.k.events.record(f.Pod, corev1.EventTypeWarning, "FailedCreatePodSandBox",
				"Failed to create pod sandbox: %s", cri.Message(o.err))
			w.retry.delayPod(now, "ContainerCreating", "")
		} else {
			w.retry.count = 0
			delete(w.retry.waits, "")
		}
	case pod.Admit:
		w.recordAdmission(f, step, o.err, now)
	case pod.ResizeContainer:
		w.recordResize(f, step, o.err, now)
	case pod.Start:
		w.recordStart(f, step, o.err, now)
	case pod.Release:
		w.inbox.mu.Lock()
		w.inbox.released = o.err == nil
		w.inbox.mu.Unlock()
		if o.err != nil {
			w.retry.delayStep(now)
		}
	case pod.Remove:
		if o.err == nil {
			return true
		}
		w.retry.delayStep(now)
	default:
		if o.err != nil {
			w.retry.delayStep(now)
		}
	}
	return false
}

func joinMessages(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// retries delays the repetition of failed steps.
type retries struct {
	count   int       // failed attempts that concern the whole pod
	at      time.Time // no step is retried before this time
	waits   map[string]pod.Wait
	backoff map[string]pod.Backoff
	pulls   map[string]pod.Backoff // by image
}

// delayPod delays the next attempt for the whole pod.
func (r *retries) delayPod(now time.Time, reason, message string) {
	delay := min(minRetry<<min(r.count, 8), maxRetry)
	r.count++
	r.waits[""] = pod.Wait{Reason: reason, Message: message, At: now, Until: now.Add(delay)}
}

// delayStep delays the repetition of a step that must succeed eventually.
func (r *retries) delayStep(now time.Time) {
	r.count++
	r.at = now.Add(min(50*time.Millisecond<<min(r.count, 6), 2*time.Second))
}

// recordAdmission records whether the pod's network policies are in effect. The reason why they are not is reported
// once, however often the step is repeated.
func (w *worker) recordAdmission(f *pod.Facts, step pod.Step, err error, now time.Time) {
	if err == nil {
		w.policies.sandbox, w.policies.problem, w.retry.count = step.SandboxID, "", 0
		return
	}
	if message := joinMessages(err); message != w.policies.problem {
		w.policies.problem = message
		w.k.events.record(f.Pod, corev1.EventTypeWarning, "NetworkNotReady",
			"Containers wait for the pod's network policies: %s", message)
	}
	w.retry.delayStep(now)
}

// recordStart records the result of a container's start.
func (w *worker) recordStart(f *pod.Facts, step pod.Step, err error, now time.Time) {
	name := step.Container
	spec := pod.Find(f.Pod, name)
	if step.Restart {
		w.retry.backoff[name] = w.retry.backoff[name].Next(now)
	}
	var fail *startError
	switch {
	case err == nil:
		delete(w.retry.waits, name)
		if spec != nil {
			delete(w.retry.pulls, spec.Image)
			for _, m := range spec.VolumeMounts {
				delete(w.retry.pulls, mountedImage(f.Pod, m.Name))
			}
		}
		return
	case !errors.As(err, &fail):
		fail = &startError{reason: "RunContainerError", message: err.Error()}
	}
	wait := pod.Wait{Reason: fail.reason, Message: fail.message, At: now, Until: now.Add(pod.FirstDelay)}
	switch {
	case fail.image != "":
		b := w.retry.pulls[fail.image].Next(now)
		w.retry.pulls[fail.image] = b
		wait.Until = now.Add(b.Delay)
		wait.BackoffReason, wait.Image = "ImagePullBackOff", fail.image
		wait.BackoffMessage = fmt.Sprintf("Back-off pulling image %q: %s: %s", fail.image, fail.reason, fail.message)
		w.k.events.record(f.Pod, corev1.EventTypeWarning, "Failed", "Error: %s", fail.reason)
	case fail.canRetrySoon:
		wait.Until = now.Add(minRetry)
	}
	w.retry.waits[name] = wait
}
