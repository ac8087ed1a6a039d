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
			w.prepared, w.refreshAt, w.retries = true, o.refreshAt, 0
			delete(w.waits, "")
		case w.prepared:
			w.refreshAt = now.Add(10 * time.Second) // running containers keep the volumes that they have
		default:
			reason, message := "FailedMount", joinMessages(o.err)
			if d, ok := errors.AsType[*devicesError](o.err); ok {
				reason, message = "FailedPrepareDynamicResources", "Failed to prepare dynamic resources: "+joinMessages(
					d.error,
				)
			}
			w.k.recordEvent(f.Pod, corev1.EventTypeWarning, reason, "%s", message)
			w.delayPod(now, "ContainerCreating", "")
		}
	case pod.RunSandbox:
		if o.err != nil {
			w.k.recordEvent(f.Pod, corev1.EventTypeWarning, "FailedCreatePodSandBox",
				"Failed to create pod sandbox: %s", cri.Message(o.err))
			w.delayPod(now, "ContainerCreating", "")
		} else {
			w.retries = 0
			delete(w.waits, "")
		}
	case pod.Admit:
		w.recordAdmission(f, step, o.err, now)
	case pod.ResizeContainer:
		w.recordResize(f, step, o.err, now)
	case pod.Start:
		w.recordStart(f, step, o.err, now)
	case pod.Release:
		w.mu.Lock()
		w.released = o.err == nil
		w.mu.Unlock()
		if o.err != nil {
			w.delayStep(now)
		}
	case pod.Remove:
		if o.err == nil {
			return true
		}
		w.delayStep(now)
	default:
		if o.err != nil {
			w.delayStep(now)
		}
	}
	return false
}

func joinMessages(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// delayPod delays the next attempt for the whole pod.
func (w *worker) delayPod(now time.Time, reason, message string) {
	delay := min(minRetry<<min(w.retries, 8), maxRetry)
	w.retries++
	w.waits[""] = pod.Wait{Reason: reason, Message: message, At: now, Until: now.Add(delay)}
}

// delayStep delays the repetition of a step that must succeed eventually.
func (w *worker) delayStep(now time.Time) {
	w.retries++
	w.retryAt = now.Add(min(50*time.Millisecond<<min(w.retries, 6), 2*time.Second))
}

// recordAdmission records whether the pod's network policies are in effect. The reason why they are not is reported
// once, however often the step is repeated.
func (w *worker) recordAdmission(f *pod.Facts, step pod.Step, err error, now time.Time) {
	if err == nil {
		w.admitted, w.admissionError, w.retries = step.SandboxID, "", 0
		return
	}
	if message := joinMessages(err); message != w.admissionError {
		w.admissionError = message
		w.k.recordEvent(f.Pod, corev1.EventTypeWarning, "NetworkNotReady",
			"Containers wait for the pod's network policies: %s", message)
	}
	w.delayStep(now)
}

// recordStart records the result of a container's start.
func (w *worker) recordStart(f *pod.Facts, step pod.Step, err error, now time.Time) {
	name := step.Container
	spec := pod.Find(f.Pod, name)
	if step.Restart {
		w.backoff[name] = w.backoff[name].Next(now)
	}
	var fail *startError
	switch {
	case err == nil:
		delete(w.waits, name)
		if spec != nil {
			delete(w.pulls, spec.Image)
			for _, m := range spec.VolumeMounts {
				delete(w.pulls, mountedImage(f.Pod, m.Name))
			}
		}
		return
	case !errors.As(err, &fail):
		fail = &startError{reason: "RunContainerError", message: err.Error()}
	}
	wait := pod.Wait{Reason: fail.reason, Message: fail.message, At: now, Until: now.Add(pod.FirstDelay)}
	switch {
	case fail.image != "":
		b := w.pulls[fail.image].Next(now)
		w.pulls[fail.image] = b
		wait.Until = now.Add(b.Delay)
		wait.BackoffReason, wait.Image = "ImagePullBackOff", fail.image
		wait.BackoffMessage = fmt.Sprintf("Back-off pulling image %q: %s: %s", fail.image, fail.reason, fail.message)
		w.k.recordEvent(f.Pod, corev1.EventTypeWarning, "Failed", "Error: %s", fail.reason)
	case fail.canRetrySoon:
		wait.Until = now.Add(minRetry)
	}
	w.waits[name] = wait
}
