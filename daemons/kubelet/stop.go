package kubelet

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kubelet/pod"
)

// killContainer stops one container. It runs the preStop handler first, within the same grace period.
func (r stepRunner) killContainer(ctx context.Context, f *pod.Facts, name, id string, grace time.Duration) error {
	start := time.Now()
	if spec := pod.Find(f.Pod, name); spec != nil && spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil &&
		grace > time.Second {
		hook, cancel := context.WithTimeout(ctx, grace)
		if err := r.runHook(hook, f, spec, id, spec.Lifecycle.PreStop); err != nil && ctx.Err() == nil {
			r.k.events.recordContainer(f.Pod, spec, corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
		}
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	left := max(grace-time.Since(start), 2*time.Second)
	if grace <= time.Second {
		left = grace
	}
	return r.k.runtime.StopContainer(ctx, id, left)
}

// killPod stops all containers of a pod, and then its sandboxes. Regular containers stop together. Sidecars stop
// afterwards in reverse order of their start, so that each outlives the containers that use it.
func (r stepRunner) killPod(ctx context.Context, f *pod.Facts, grace time.Duration) error {
	start := time.Now()
	var together []pod.Container
	sidecars := map[string]pod.Container{}
	for _, c := range f.Containers {
		if c.State != pod.Running {
			continue
		}
		if spec := pod.Find(f.Pod, c.Name); spec != nil && pod.IsSidecar(spec) && isSidecar(f.Pod, c.Name) {
			sidecars[c.Name] = c
		} else {
			together = append(together, c)
		}
	}
	var all sync.WaitGroup
	errs := make([]error, len(together))
	for i, c := range together {
		all.Go(func() {
			r.recordKilling(f, c.Name)
			errs[i] = r.killContainer(ctx, f, c.Name, c.ID, grace)
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i := len(f.Pod.Spec.InitContainers) - 1; i >= 0; i-- {
		c, ok := sidecars[f.Pod.Spec.InitContainers[i].Name]
		if !ok {
			continue
		}
		r.recordKilling(f, c.Name)
		if err := r.killContainer(ctx, f, c.Name, c.ID, max(grace-time.Since(start), time.Second)); err != nil {
			return err
		}
	}
	for _, s := range f.Sandboxes {
		if s.Ready {
			if err := r.k.runtime.StopPodSandbox(ctx, s.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

func isSidecar(p *corev1.Pod, name string) bool {
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == name {
			return true
		}
	}
	return false
}

func (r stepRunner) recordKilling(f *pod.Facts, name string) {
	if spec := pod.Find(f.Pod, name); spec != nil {
		r.k.events.recordContainer(f.Pod, spec, corev1.EventTypeNormal, "Killing", "Stopping container %s", name)
	}
}
