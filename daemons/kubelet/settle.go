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

// outcome is the result of a step.
type outcome struct {
	err   error
	again time.Time // of Prepare: when to refresh the volumes
}

// failure is why a container did not start, with the reason and message for its status.
type failure struct {
	reason, message string
	image           string // set if the image could not be obtained
	quick           bool   // worth retrying soon
}

func (f *failure) Error() string { return f.reason + ": " + f.message }

const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// settle records the result of a step, and reports whether the worker is done.
func (w *worker) settle(f *pod.Facts, step pod.Step, o outcome) (done bool) {
	if errors.Is(o.err, context.Canceled) {
		return false
	}
	now := time.Now()
	if o.err != nil {
		w.k.env.Log.Warn(
			"step failed",
			"pod",
			key(f.Pod),
			"step",
			step.Kind,
			"container",
			step.Container,
			"error",
			o.err,
		)
	}
	switch step.Kind {
	case pod.Prepare:
		switch {
		case o.err == nil:
			w.prepared, w.again, w.retries = true, o.again, 0
			delete(w.waits, "")
		case w.prepared:
			w.again = now.Add(10 * time.Second) // running containers keep the volumes that they have
		default:
			reason, message := "FailedMount", joined(o.err)
			if d, ok := errors.AsType[*devicesError](o.err); ok {
				reason, message = "FailedPrepareDynamicResources", "Failed to prepare dynamic resources: "+joined(
					d.error,
				)
			}
			w.k.event(f.Pod, corev1.EventTypeWarning, reason, "%s", message)
			w.holdPod(now, "ContainerCreating", "")
		}
	case pod.RunSandbox:
		if o.err != nil {
			w.k.event(
				f.Pod,
				corev1.EventTypeWarning,
				"FailedCreatePodSandBox",
				"Failed to create pod sandbox: %s",
				cri.Message(o.err),
			)
			w.holdPod(now, "ContainerCreating", "")
		} else {
			w.retries = 0
			delete(w.waits, "")
		}
	case pod.Admit:
		w.settleAdmission(f, step, o.err, now)
	case pod.ResizeContainer:
		w.settleResize(f, step, o.err, now)
	case pod.Start:
		w.settleStart(f, step, o.err, now)
	case pod.Release:
		w.mu.Lock()
		w.released = o.err == nil
		w.mu.Unlock()
		if o.err != nil {
			w.holdOn(now)
		}
	case pod.Remove:
		if o.err == nil {
			return true
		}
		w.holdOn(now)
	default:
		if o.err != nil {
			w.holdOn(now)
		}
	}
	return false
}

func joined(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// holdPod delays the next attempt for the whole pod.
func (w *worker) holdPod(now time.Time, reason, message string) {
	delay := min(firstRetry<<min(w.retries, 8), lastRetry)
	w.retries++
	w.waits[""] = pod.Wait{Reason: reason, Message: message, At: now, Until: now.Add(delay)}
}

// holdOn delays the repetition of a step that must succeed eventually.
func (w *worker) holdOn(now time.Time) {
	w.retries++
	w.hold = now.Add(min(50*time.Millisecond<<min(w.retries, 6), 2*time.Second))
}

// settleAdmission records whether the pod's network policies are in effect. The reason why they are not is reported
// once, however often the step is repeated.
func (w *worker) settleAdmission(f *pod.Facts, step pod.Step, err error, now time.Time) {
	if err == nil {
		w.admitted, w.refused, w.retries = step.SandboxID, "", 0
		return
	}
	if message := joined(err); message != w.refused {
		w.refused = message
		w.k.event(
			f.Pod,
			corev1.EventTypeWarning,
			"NetworkNotReady",
			"Containers wait for the pod's network policies: %s",
			message,
		)
	}
	w.holdOn(now)
}

// settleStart records the result of a container's start.
func (w *worker) settleStart(f *pod.Facts, step pod.Step, err error, now time.Time) {
	name := step.Container
	spec := pod.Find(f.Pod, name)
	if step.Restart {
		w.backoff[name] = w.backoff[name].Next(now)
	}
	var fail *failure
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
		fail = &failure{reason: "RunContainerError", message: err.Error()}
	}
	wait := pod.Wait{Reason: fail.reason, Message: fail.message, At: now, Until: now.Add(pod.FirstDelay)}
	switch {
	case fail.image != "":
		b := w.pulls[fail.image].Next(now)
		w.pulls[fail.image] = b
		wait.Until = now.Add(b.Delay)
		wait.BackoffReason, wait.Image = "ImagePullBackOff", fail.image
		wait.BackoffMessage = fmt.Sprintf("Back-off pulling image %q: %s: %s", fail.image, fail.reason, fail.message)
		w.k.event(f.Pod, corev1.EventTypeWarning, "Failed", "Error: %s", fail.reason)
	case fail.quick:
		wait.Until = now.Add(firstRetry)
	}
	w.waits[name] = wait
}
