package kubelet

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kubelet/pod"
	"clusterctl/daemons/kubelet/probe"
)

// runningProbes holds the probes that run for one container.
type runningProbes struct {
	stop    map[probe.Kind]context.CancelFunc // stops each probe that was launched
	wg      sync.WaitGroup
	started bool // the container has started: its liveness and readiness probes are launched
}

// syncProbes starts and stops the probes of containers. A running container first has only its startup probe, then the
// others. Probes of ended containers are stopped. While a pod terminates, liveness and startup probes are stopped and
// readiness probes continue, because they report that a container is draining.
func (w *worker) syncProbes(ctx context.Context, f *pod.Facts) {
	alive := map[string]bool{}
	going := f.Removed || f.Pod.DeletionTimestamp != nil || pod.Ended(f) != nil
	for _, c := range f.Containers {
		spec := pod.Find(f.Pod, c.Name)
		if c.State != pod.Running || spec == nil || len(f.Sandboxes) == 0 || c.SandboxID != f.Sandboxes[0].ID {
			continue
		}
		if spec.LivenessProbe == nil && spec.ReadinessProbe == nil && spec.StartupProbe == nil {
			continue
		}
		alive[c.ID] = true
		at := w.probing[c.ID]
		if at == nil {
			at = &runningProbes{stop: map[probe.Kind]context.CancelFunc{}}
			w.probing[c.ID] = at
			// No probe has a result yet. After a restart of the kubelet, a running container keeps the state in the API
			// until a probe contradicts it.
			cached := pod.Probe{
				Started: spec.StartupProbe == nil,
				Ready:   spec.StartupProbe == nil && spec.ReadinessProbe == nil,
			}
			if before, ok := reportedProbe(f, c); ok && c.Started.Before(w.firstSeen) {
				cached = before
			}
			w.updateProbe(c.ID, func(p *pod.Probe) { *p = cached })
			if spec.StartupProbe != nil && !cached.Started && !going {
				w.launchProbe(ctx, at, f, spec, c, probe.Startup, spec.StartupProbe)
			}
		}
		w.inbox.mu.Lock()
		started := w.inbox.probes[c.ID].Started
		w.inbox.mu.Unlock()
		if started && !at.started {
			at.started = true
			w.launchStarted(ctx, at, f, spec, c, going)
		}
	}
	for id, at := range w.probing {
		if !alive[id] {
			at.stopKinds()
			delete(w.probing, id)
		} else if going {
			at.stopKinds(probe.Liveness, probe.Startup)
		}
	}
}

// stopKinds stops the probes of the given kinds. Without any kind, it stops all.
func (at *runningProbes) stopKinds(kinds ...probe.Kind) {
	for kind, stop := range at.stop {
		if len(kinds) == 0 || slices.Contains(kinds, kind) {
			stop()
		}
	}
}

// launchStarted launches the liveness and readiness probes of a container that has started.
func (w *worker) launchStarted(ctx context.Context, at *runningProbes, f *pod.Facts, spec *corev1.Container,
	c pod.Container,
	going bool) {
	if spec.LivenessProbe != nil && !going {
		w.launchProbe(ctx, at, f, spec, c, probe.Liveness, spec.LivenessProbe)
	}
	if spec.ReadinessProbe != nil {
		w.launchProbe(ctx, at, f, spec, c, probe.Readiness, spec.ReadinessProbe)
	} else {
		w.updateProbe(c.ID, func(p *pod.Probe) { p.Ready = true })
	}
}

func reportedProbe(f *pod.Facts, c pod.Container) (pod.Probe, bool) {
	for _, s := range append(append([]corev1.ContainerStatus{}, f.Pod.Status.ContainerStatuses...),
		f.Pod.Status.InitContainerStatuses...) {
		if strings.HasSuffix(s.ContainerID, "://"+c.ID) && s.Started != nil {
			return pod.Probe{Started: *s.Started, Ready: s.Ready}, true
		}
	}
	return pod.Probe{}, false
}

// launchProbe starts one probe of a container.
func (w *worker) launchProbe(
	ctx context.Context,
	at *runningProbes,
	f *pod.Facts,
	spec *corev1.Container,
	c pod.Container,
	kind probe.Kind,
	p *corev1.Probe,
) {
	ctx, cancel := context.WithCancel(ctx)
	at.stop[kind] = cancel
	one := &probe.Worker{
		Kind: kind, Probe: p, Target: w.steps.probeTarget(f, spec, c.ID), Started: c.Started,
		OnResult: func(took time.Duration, err error) {
			w.k.metrics.Probes.RecordProbe(f.Pod, spec.Name, strings.ToUpper(string(kind[:1]))+string(kind[1:]), took,
				err)
		},
		OnFailure: func(err error) {
			name := strings.ToUpper(string(kind[:1])) + string(kind[1:])
			w.k.events.recordContainer(f.Pod, spec, corev1.EventTypeWarning, "Unhealthy", "%s probe failed: %s", name,
				err)
		},
		OnVerdict: func(ok bool) {
			w.updateProbe(c.ID, func(p *pod.Probe) {
				switch {
				case kind == probe.Readiness:
					p.Ready = ok
				case !ok:
					p.Failed = string(kind)
				case kind == probe.Startup:
					p.Started = true
					p.Ready = spec.ReadinessProbe == nil
				}
			})
			if kind == probe.Startup {
				cancel()
			}
		},
	}
	at.wg.Go(func() { defer cancel(); one.Run(ctx) })
}

// updateProbe updates the probe results of a container.
func (w *worker) updateProbe(id string, change func(*pod.Probe)) {
	w.inbox.update(func() {
		p := w.inbox.probes[id]
		change(&p)
		w.inbox.probes[id] = p
	})
}

// removeEndedProbes drops the probe results of containers that no longer run.
func (w *worker) removeEndedProbes() {
	running := map[string]bool{}
	for _, c := range w.inbox.containers {
		running[c.ID] = c.State == pod.Running
	}
	w.inbox.mu.Lock()
	defer w.inbox.mu.Unlock()
	for id := range w.inbox.probes {
		if !running[id] {
			delete(w.inbox.probes, id)
		}
	}
}

func (w *worker) stopProbes() {
	for _, at := range w.probing {
		at.stopKinds()
	}
	for _, at := range w.probing {
		at.wg.Wait()
	}
}

// probeTarget returns how probes and handlers reach a container.
func (r stepRunner) probeTarget(f *pod.Facts, spec *corev1.Container, id string) probe.Target {
	ip := ""
	switch {
	case f.Pod.Spec.HostNetwork && len(f.HostIPs) > 0:
		ip = f.HostIPs[0]
	case len(f.Sandboxes) > 0 && len(f.Sandboxes[0].IPs) > 0:
		ip = f.Sandboxes[0].IPs[0]
	}
	return probe.Target{
		Pod:       f.Pod,
		Container: spec,
		IP:        ip,
		Simulated: r.k.simulated,
		Exec: func(ctx context.Context, command []string, timeout time.Duration) (string, int32, error) {
			stdout, stderr, code, err := r.k.runtime.ExecSync(ctx, id, command, timeout)
			return string(stdout) + string(stderr), code, err
		},
	}
}
