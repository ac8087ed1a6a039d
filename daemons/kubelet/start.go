package kubelet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/kubelet/pod"
	"clusterctl/daemons/kubelet/probe"
	"clusterctl/daemons/kubelet/sleep"
)

// startContainer starts one container: it obtains the image, prepares the environment and the mounts, creates and
// starts the container, and runs the postStart hook.
func (w *worker) startContainer(ctx context.Context, f *pod.Facts, step pod.Step) error {
	k, p := w.k, f.Pod
	spec := pod.Find(p, step.Container)
	if pod.IsEphemeral(p, spec.Name) {
		if end := pod.CheckContainer(spec); end != nil {
			k.events.recordContainer(p, spec, corev1.EventTypeWarning, end.Reason, "%s", end.Message)
			return &startError{reason: "CreateContainerConfigError", message: end.Message}
		}
	}
	if err := w.widenCgroup(f); err != nil {
		return err
	}
	box, err := w.steps.sandboxConfig(p, f.Sandboxes[0].Attempt)
	if err != nil {
		return err
	}
	image, err := w.images.ensureImage(ctx, p, spec, box)
	if err != nil {
		return err
	}
	for _, m := range spec.VolumeMounts {
		if err := w.images.ensureVolumeImage(ctx, p, spec, m.Name, box); err != nil {
			return err
		}
	}
	config, err := w.steps.containerConfig(ctx, f, spec, step.Attempt, image)
	if err != nil {
		k.events.recordContainer(p, spec, corev1.EventTypeWarning, "Failed", "Error: %s", err)
		return &startError{reason: "CreateContainerConfigError", message: err.Error(), canRetrySoon: true}
	}
	if err := joinTarget(config, f, spec.Name); err != nil {
		return &startError{reason: "CreateContainerConfigError", message: err.Error(), canRetrySoon: true}
	}
	id, err := k.runtime.CreateContainer(ctx, step.SandboxID, config, box)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		k.events.recordContainer(p, spec, corev1.EventTypeWarning, "Failed", "Error: %s", cri.Message(err))
		return &startError{reason: "CreateContainerError", message: cri.Message(err)}
	}
	k.events.recordContainer(p, spec, corev1.EventTypeNormal, "Created", "Created container: %s", spec.Name)
	if err := k.runtime.StartContainer(ctx, id); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		k.events.recordContainer(p, spec, corev1.EventTypeWarning, "Failed", "Error: %s", cri.Message(err))
		return &startError{reason: "RunContainerError", message: cri.Message(err)}
	}
	k.events.recordContainer(p, spec, corev1.EventTypeNormal, "Started", "Started container %s", spec.Name)
	k.logs.Link(p, spec.Name, step.Attempt, id)
	if l := spec.Lifecycle; l != nil && l.PostStart != nil {
		if err := w.steps.runHook(ctx, f, spec, id, l.PostStart); err != nil && ctx.Err() == nil {
			k.events.recordContainer(p, spec, corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed: "+
				"%s", err)
			k.events.recordContainer(p, spec, corev1.EventTypeNormal, "Killing", "FailedPostStartHook")
			if err := w.steps.killContainer(ctx, f, spec.Name, id, pod.Grace(f)); err != nil {
				return err
			}
			return &startError{reason: "PostStartHookError", message: err.Error()}
		}
	}
	return nil
}

// joinTarget puts an ephemeral container into the process namespace of its target container.
func joinTarget(config *criapi.ContainerConfig, f *pod.Facts, name string) error {
	target := pod.Target(f.Pod, name)
	if target == "" {
		return nil
	}
	for _, c := range f.Containers {
		if c.Name == target && c.State == pod.Running {
			n := config.Linux.SecurityContext.NamespaceOptions
			n.Pid, n.TargetId = criapi.NamespaceMode_TARGET, c.ID
			return nil
		}
	}
	return fmt.Errorf("unable to find target container %q: it does not run", target)
}

// containerConfig assembles a container's runtime configuration, including everything that comes from outside its spec.
func (r stepRunner) containerConfig(
	ctx context.Context,
	f *pod.Facts,
	spec *corev1.Container,
	attempt uint32,
	image *criapi.Image,
) (*criapi.ContainerConfig, error) {
	k := r.k
	p := f.Pod.DeepCopy()
	now := pod.Status(f)
	p.Status.PodIP, p.Status.PodIPs = now.PodIP, now.PodIPs
	services, err := k.listServices(ctx)
	if err != nil {
		return nil, err
	}
	env, err := cri.Env(withPod(ctx, p.UID), p, spec, k.objects, services, k.fieldNode())
	if err != nil {
		return nil, err
	}
	mounts, err := k.volumes.Mounts(
		p,
		spec,
		func(s string) (string, error) { return cri.ExpandPath(s, env) },
		func() (bool, error) {
			handler, err := r.runtimeHandler(ctx, p)
			if err != nil {
				return false, err
			}
			return k.runtime.RecursiveReadOnly(ctx, handler)
		},
	)
	if err != nil {
		return nil, err
	}
	devices, err := k.volumes.Devices(p, spec)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, m := range mounts {
		taken[filepath.Clean(m.ContainerPath)] = true
	}
	if !taken["/etc/hosts"] {
		host, domain := podHostname(p, k.file.ClusterDomain)
		var ips []string
		for _, ip := range p.Status.PodIPs {
			ips = append(ips, ip.IP)
		}
		path, err := k.volumes.WriteHosts(p, host, domain, ips)
		if err != nil {
			return nil, fmt.Errorf("write the pod's hosts file: %w", err)
		}
		mounts = append(mounts, &criapi.Mount{ContainerPath: "/etc/hosts", HostPath: path})
	}
	if path := spec.TerminationMessagePath; path != "" && !taken[filepath.Clean(path)] {
		path, err := k.volumes.TerminationLog(string(p.UID), spec.Name, attempt)
		if err != nil {
			return nil, fmt.Errorf("make the termination log: %w", err)
		}
		mounts = append(mounts, &criapi.Mount{ContainerPath: spec.TerminationMessagePath, HostPath: path})
	}
	if err := k.logs.Create(filepath.Join(k.logs.Pod(p), spec.Name)); err != nil {
		return nil, fmt.Errorf("make the container's log directory: %w", err)
	}
	place, err := r.nodeSettings(p)
	if err != nil {
		return nil, err
	}
	return cri.Container(p, spec, place, cri.ContainerExtras{Attempt: attempt, Env: env, Mounts: mounts, Image: image,
		Devices: k.devices.IDs(p, spec), Volumes: devices})
}

// listServices returns the services for pods' environment, or nil before the API is synced.
func (k *Kubelet) listServices(ctx context.Context) ([]*corev1.Service, error) {
	select {
	case <-k.synced:
		return k.watches.listServices()
	default:
		// Static pods start without the API.
		return nil, nil
	}
}

// runHook runs a lifecycle handler.
func (r stepRunner) runHook(
	ctx context.Context,
	f *pod.Facts,
	spec *corev1.Container,
	id string,
	h *corev1.LifecycleHandler,
) error {
	switch {
	case h.Exec != nil:
		_, stderr, code, err := r.k.runtime.ExecSync(ctx, id, h.Exec.Command, hookTimeout)
		if err != nil {
			return err
		}
		if code != 0 {
			return fmt.Errorf("command '%s' exited with %d: %s", strings.Join(h.Exec.Command, " "), code, stderr)
		}
	case h.HTTPGet != nil:
		return probe.Get(ctx, h.HTTPGet, r.probeTarget(f, spec, id))
	case h.Sleep != nil:
		sleep.For(ctx, time.Duration(h.Sleep.Seconds)*time.Second)
	default:
		return errors.New("invalid handler: it has none of exec, httpGet and sleep")
	}
	return nil
}

const hookTimeout = time.Hour
