package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/api/admitpod"
	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/kubelet/pod"
)

// do carries out one step. Every step can be repeated.
func (w *worker) do(ctx context.Context, f *pod.Facts, step pod.Step) outcome {
	switch step.Kind {
	case pod.Prepare:
		return w.prepare(ctx, f)
	case pod.RunSandbox:
		return outcome{err: w.runSandbox(ctx, f, step.Attempt)}
	case pod.Admit:
		return outcome{err: w.admit(ctx, f)}
	case pod.Start:
		return outcome{err: w.start(ctx, f, step)}
	case pod.ResizeContainer:
		return outcome{err: w.resize(ctx, f, step)}
	case pod.Kill:
		w.k.event(f.Pod, corev1.EventTypeNormal, "Killing", "%s", step.Message)
		return outcome{err: w.kill(ctx, f, step.Container, step.ID, step.Grace)}
	case pod.KillPod:
		return outcome{err: w.killPod(ctx, f, step.Grace)}
	case pod.RemoveContainers:
		var errs []error
		for _, id := range step.IDs {
			errs = append(errs, w.k.runtime.RemoveContainer(ctx, id))
			if !step.KeepLogs {
				errs = append(errs, w.removeLog(f, id))
			}
		}
		return outcome{err: errors.Join(errs...)}
	case pod.RemoveSandboxes:
		var errs []error
		for _, id := range step.IDs {
			errs = append(errs, w.removeSandbox(ctx, id))
		}
		return outcome{err: errors.Join(errs...)}
	case pod.Release:
		return outcome{err: w.release(ctx, f)}
	case pod.Remove:
		return outcome{err: w.remove(ctx, f)}
	}
	return outcome{}
}

// removeLog removes the log of one attempt of a container, including its rotated parts.
func (w *worker) removeLog(f *pod.Facts, id string) error {
	var errs []error
	for _, c := range f.Containers {
		if c.ID != id {
			continue
		}
		errs = append(errs, w.k.inLogs(func(root *os.Root) error {
			parts, err := logParts(
				root,
				w.k.logName(filepath.Join(cri.LogDir(w.k.logRoot, f.Pod), cri.LogPath(c.Name, c.Attempt))),
			)
			for _, part := range parts {
				err = errors.Join(err, root.Remove(part))
			}
			return err
		}))
	}
	return errors.Join(errs...)
}

func (w *worker) prepare(ctx context.Context, f *pod.Facts) outcome {
	if err := w.k.devices.Prepare(ctx, f.Pod); err != nil {
		return outcome{err: &devicesError{err}}
	}
	// forPod registers the pod as a user of the objects that are read, so that their changes wake its worker.
	began := time.Now()
	again, err := w.k.volumes.Setup(forPod(ctx, f.Pod.UID), f.Pod)
	w.k.metrics.mounted(f.Pod, "volume_mount", began, err)
	if err != nil {
		return outcome{err: err}
	}
	// The limits are written when the pod's resources have changed, and once after each start of the kubelet.
	limits := w.k.limits(f.Pod)
	if pod.ContainersResizing(f) {
		limits = limits.Or(w.limits) // other containers still have to shrink
	}
	if limits, again = w.fitted(ctx, f, limits, again); limits != w.limits {
		w.k.shareCPU()
		if err := w.k.cgroups.Make(w.k.cgroups.Parent(f.Pod), limits); err != nil {
			return outcome{err: fmt.Errorf("make the pod's cgroup: %w", err)}
		}
		w.setLimits(limits)
	}
	if !w.prepared {
		if err := w.k.makeLogDir(cri.LogDir(w.k.logRoot, f.Pod)); err != nil {
			return outcome{err: fmt.Errorf("make the pod's log directory: %w", err)}
		}
	}
	return outcome{again: again}
}

// handler returns the runtime handler of the pod's RuntimeClass, or "" for the default handler.
func (w *worker) handler(ctx context.Context, p *corev1.Pod) (string, error) {
	class := p.Spec.RuntimeClassName
	if class == nil {
		return "", nil
	}
	rc, err := w.k.client.NodeV1().RuntimeClasses().Get(ctx, *class, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("look up runtime class %s: %w", *class, err)
	}
	return rc.Handler, nil
}

func (w *worker) runSandbox(ctx context.Context, f *pod.Facts, attempt uint32) error {
	handler, err := w.handler(ctx, f.Pod)
	if err != nil {
		return err
	}
	box, err := w.sandboxConfig(f.Pod, attempt)
	if err != nil {
		return err
	}
	_, omitted := w.k.resolve.For(f.Pod)
	for _, message := range omitted {
		w.k.event(f.Pod, corev1.EventTypeWarning, "DNSConfigForming", "%s", message)
	}
	_, err = w.k.runtime.RunPodSandbox(ctx, box, handler)
	return err
}

// admit waits until the network policies for the pod's newest sandbox are in effect.
func (w *worker) admit(ctx context.Context, f *pod.Facts) error {
	return admitpod.Admit(ctx, w.k.cfg.NetworkPolicySocket, admitpod.Pod{
		UID: string(f.Pod.UID), Namespace: f.Pod.Namespace, Name: f.Pod.Name, IPs: f.Sandboxes[0].IPs,
	})
}

func (w *worker) place(p *corev1.Pod) (cri.Place, error) {
	host, err := kernelName(p, w.k.file.ClusterDomain)
	if err != nil {
		return cri.Place{}, err
	}
	dns, _ := w.k.resolve.For(p)
	return cri.Place{
		LogRoot: w.k.logRoot, CgroupParent: w.k.cgroups.Parent(p), Hostname: host,
		DNS: dns, Memory: w.k.memory(), Unified: w.k.unified(),
		SeccompRoot: filepath.Join(w.k.cfg.RootDir, "seccomp"),
	}, nil
}

func (w *worker) sandboxConfig(p *corev1.Pod, attempt uint32) (*criapi.PodSandboxConfig, error) {
	place, err := w.place(p)
	if err != nil {
		return nil, err
	}
	return cri.Sandbox(p, place, attempt), nil
}

// hostname returns a pod's host name and, when it has a subdomain, its domain.
func hostname(p *corev1.Pod, cluster string) (host, domain string) {
	const longest = 63
	host = p.Name
	if p.Spec.Hostname != "" {
		host = p.Spec.Hostname
	}
	if len(host) > longest {
		host = host[:longest]
		for len(host) > 0 && (host[len(host)-1] == '-' || host[len(host)-1] == '.') {
			host = host[:len(host)-1]
		}
	}
	if p.Spec.HostnameOverride != nil {
		return *p.Spec.HostnameOverride, ""
	}
	if p.Spec.Subdomain != "" {
		domain = p.Spec.Subdomain + "." + p.Namespace + ".svc." + cluster
	}
	return host, domain
}

// kernelName returns the host name that the kernel reports to a pod: the FQDN if the pod sets setHostnameAsFQDN.
func kernelName(p *corev1.Pod, cluster string) (string, error) {
	const longest = 64 // bytes; HOST_NAME_MAX of Linux
	host, domain := hostname(p, cluster)
	if full := p.Spec.SetHostnameAsFQDN; full != nil && *full && domain != "" {
		host += "." + domain
		if len(host) > longest {
			return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, "+
				"FQDN %s is too long (%d characters is the max, %d characters requested)", host, longest, len(host))
		}
	}
	return host, nil
}

func (w *worker) removeSandbox(ctx context.Context, id string) error {
	if err := w.k.runtime.StopPodSandbox(ctx, id); err != nil {
		return err
	}
	return w.k.runtime.RemovePodSandbox(ctx, id)
}

// release frees the machine resources that an ended pod holds. It keeps the containers, because their logs are still
// needed.
func (w *worker) release(ctx context.Context, f *pod.Facts) error {
	w.k.objects.forget(f.Pod.UID)
	if err := w.k.devices.Unprepare(ctx, f.Pod.UID); err != nil {
		w.k.event(
			f.Pod,
			corev1.EventTypeWarning,
			"FailedUnprepareDynamicResources",
			"Failed to unprepare dynamic resources: %v",
			err,
		)
		return err
	}
	began := time.Now()
	err := w.k.volumes.Teardown(string(f.Pod.UID))
	w.k.metrics.mounted(f.Pod, "volume_unmount", began, err)
	if err != nil {
		return err
	}
	return w.k.cgroups.Remove(w.k.cgroups.Parent(f.Pod))
}

// remove removes everything that is left of a pod. It deletes the pod's API object last, which signals that the removal
// is complete.
func (w *worker) remove(ctx context.Context, f *pod.Facts) error {
	for _, s := range f.Sandboxes {
		if err := w.removeSandbox(ctx, s.ID); err != nil {
			return err
		}
	}
	for _, c := range f.Containers {
		if err := w.k.runtime.RemoveContainer(ctx, c.ID); err != nil {
			return err
		}
	}
	if err := w.release(ctx, f); err != nil {
		return err
	}
	if err := w.k.removeLogs(cri.LogDir(w.k.logRoot, f.Pod)); err != nil {
		return fmt.Errorf("remove the pod's logs: %w", err)
	}
	if f.Removed || pod.Static(f.Pod) {
		return nil
	}
	if err := w.k.status.flush(ctx, f.Pod.UID); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	zero, uid := int64(0), f.Pod.UID
	err := w.k.client.CoreV1().Pods(f.Pod.Namespace).Delete(ctx, f.Pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &uid},
	})
	// A conflict means that the API has another pod of this name, which is not this kubelet's to delete.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s: %w", key(f.Pod), err)
	}
	return nil
}

// event records an event about a pod.
func (k *Kubelet) event(p *corev1.Pod, kind, reason, format string, args ...any) {
	if p.Annotations[pod.SourceAnnotation] == "file" {
		if m := k.mirrors.of(p); m != nil {
			p = m
		}
	}
	ref := &corev1.ObjectReference{
		APIVersion:      "v1",
		Kind:            "Pod",
		Namespace:       p.Namespace,
		Name:            p.Name,
		UID:             p.UID,
		ResourceVersion: p.ResourceVersion,
	}
	k.events.Eventf(ref, kind, reason, format, args...)
}

// containerEvent records an event about one container of a pod.
func (k *Kubelet) containerEvent(p *corev1.Pod, spec *corev1.Container, kind, reason, format string, args ...any) {
	path := "spec.containers{" + spec.Name + "}"
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == spec.Name {
			path = "spec.initContainers{" + spec.Name + "}"
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if p.Spec.EphemeralContainers[i].Name == spec.Name {
			path = "spec.ephemeralContainers{" + spec.Name + "}"
		}
	}
	ref := &corev1.ObjectReference{
		APIVersion:      "v1",
		Kind:            "Pod",
		Namespace:       p.Namespace,
		Name:            p.Name,
		UID:             p.UID,
		ResourceVersion: p.ResourceVersion,
		FieldPath:       path,
	}
	k.events.Eventf(ref, kind, reason, format, args...)
}
