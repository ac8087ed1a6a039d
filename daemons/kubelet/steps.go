package kubelet

import (
	"context"
	"errors"
	"fmt"
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

// runStep carries out one step. Every step can be repeated.
func (w *worker) runStep(ctx context.Context, f *pod.Facts, step pod.Step) stepResult {
	switch step.Kind {
	case pod.Prepare:
		return w.preparePod(ctx, f)
	case pod.RunSandbox:
		return stepResult{err: w.runSandbox(ctx, f, step.Attempt)}
	case pod.Admit:
		return stepResult{err: w.awaitPolicies(ctx, f)}
	case pod.Start:
		return stepResult{err: w.startContainer(ctx, f, step)}
	case pod.ResizeContainer:
		return stepResult{err: w.resizeContainer(ctx, f, step)}
	case pod.Kill:
		w.k.recordEvent(f.Pod, corev1.EventTypeNormal, "Killing", "%s", step.Message)
		return stepResult{err: w.killContainer(ctx, f, step.Container, step.ID, step.Grace)}
	case pod.KillPod:
		return stepResult{err: w.killPod(ctx, f, step.Grace)}
	case pod.RemoveContainers:
		var errs []error
		for _, id := range step.IDs {
			errs = append(errs, w.k.runtime.RemoveContainer(ctx, id))
			if !step.KeepLogs {
				errs = append(errs, w.removeLog(f, id))
			}
		}
		return stepResult{err: errors.Join(errs...)}
	case pod.RemoveSandboxes:
		var errs []error
		for _, id := range step.IDs {
			errs = append(errs, w.removeSandbox(ctx, id))
		}
		return stepResult{err: errors.Join(errs...)}
	case pod.Release:
		return stepResult{err: w.release(ctx, f)}
	case pod.Remove:
		return stepResult{err: w.removePod(ctx, f)}
	}
	return stepResult{}
}

// removeLog removes the log of one attempt of a container, including its rotated parts.
func (w *worker) removeLog(f *pod.Facts, id string) error {
	var errs []error
	for _, c := range f.Containers {
		if c.ID != id {
			continue
		}
		errs = append(errs, w.k.logs.Remove(f.Pod, c.Name, c.Attempt))
	}
	return errors.Join(errs...)
}

func (w *worker) preparePod(ctx context.Context, f *pod.Facts) stepResult {
	if err := w.k.devices.Prepare(ctx, f.Pod); err != nil {
		return stepResult{err: &devicesError{err}}
	}
	// withPod registers the pod as a user of the objects that are read, so that their changes wake its worker.
	began := time.Now()
	again, err := w.k.volumes.Setup(withPod(ctx, f.Pod.UID), f.Pod)
	w.k.metrics.RecordMount(f.Pod, "volume_mount", began, err)
	if err != nil {
		return stepResult{err: err}
	}
	// The limits are written when the pod's resources have changed, and once after each start of the kubelet.
	limits := w.k.limits().podCgroupLimits(f.Pod)
	if pod.HasResizingContainers(f) {
		limits = limits.Max(w.limits) // other containers still have to shrink
	}
	if limits, again = w.fitLimits(ctx, f, limits, again); limits != w.limits {
		w.k.chores.shares.Update()
		if err := w.k.cgroups.Make(w.k.cgroups.Parent(f.Pod), limits); err != nil {
			return stepResult{err: fmt.Errorf("make the pod's cgroup: %w", err)}
		}
		w.setLimits(limits)
	}
	if !w.prepared {
		if err := w.k.logs.Create(w.k.logs.Pod(f.Pod)); err != nil {
			return stepResult{err: fmt.Errorf("make the pod's log directory: %w", err)}
		}
	}
	return stepResult{refreshAt: again}
}

// runtimeHandler returns the runtime handler of the pod's RuntimeClass, or "" for the default handler.
func (w *worker) runtimeHandler(ctx context.Context, p *corev1.Pod) (string, error) {
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
	handler, err := w.runtimeHandler(ctx, f.Pod)
	if err != nil {
		return err
	}
	box, err := w.sandboxConfig(f.Pod, attempt)
	if err != nil {
		return err
	}
	_, omitted := w.k.resolver.PodConfig(f.Pod)
	for _, message := range omitted {
		w.k.recordEvent(f.Pod, corev1.EventTypeWarning, "DNSConfigForming", "%s", message)
	}
	_, err = w.k.runtime.RunPodSandbox(ctx, box, handler)
	return err
}

// awaitPolicies waits until the network policies for the pod's newest sandbox are in effect.
func (w *worker) awaitPolicies(ctx context.Context, f *pod.Facts) error {
	return admitpod.Admit(ctx, w.k.cfg.NetworkPolicySocket, admitpod.Pod{
		UID: string(f.Pod.UID), Namespace: f.Pod.Namespace, Name: f.Pod.Name, IPs: f.Sandboxes[0].IPs,
	})
}

func (w *worker) nodeSettings(p *corev1.Pod) (cri.NodeSettings, error) {
	host, err := kernelName(p, w.k.file.ClusterDomain)
	if err != nil {
		return cri.NodeSettings{}, err
	}
	dns, _ := w.k.resolver.PodConfig(p)
	return cri.NodeSettings{
		LogRoot: string(w.k.logs), CgroupParent: w.k.cgroups.Parent(p), Hostname: host,
		DNS: dns, Memory: w.k.limits().memoryCapacity(), Unified: w.k.limits().containerMemory(),
		SeccompRoot: filepath.Join(w.k.cfg.RootDir, "seccomp"),
	}, nil
}

func (w *worker) sandboxConfig(p *corev1.Pod, attempt uint32) (*criapi.PodSandboxConfig, error) {
	place, err := w.nodeSettings(p)
	if err != nil {
		return nil, err
	}
	return cri.Sandbox(p, place, attempt), nil
}

// podHostname returns a pod's host name and, when it has a subdomain, its domain.
func podHostname(p *corev1.Pod, cluster string) (host, domain string) {
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
	host, domain := podHostname(p, cluster)
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
	w.k.objects.removePod(f.Pod.UID)
	if err := w.k.devices.Unprepare(ctx, f.Pod.UID); err != nil {
		w.k.recordEvent(f.Pod, corev1.EventTypeWarning, "FailedUnprepareDynamicResources",
			"Failed to unprepare dynamic resources: %v", err)
		return err
	}
	began := time.Now()
	err := w.k.volumes.Teardown(string(f.Pod.UID))
	w.k.metrics.RecordMount(f.Pod, "volume_unmount", began, err)
	if err != nil {
		return err
	}
	return w.k.cgroups.Remove(w.k.cgroups.Parent(f.Pod))
}

// removePod removes everything that is left of a pod. It deletes the pod's API object last, which signals that the
// removal is complete.
func (w *worker) removePod(ctx context.Context, f *pod.Facts) error {
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
	if err := w.k.logs.RemoveAll(w.k.logs.Pod(f.Pod)); err != nil {
		return fmt.Errorf("remove the pod's logs: %w", err)
	}
	if f.Removed || pod.IsStatic(f.Pod) {
		return nil
	}
	if err := w.k.status.writeStatus(ctx, f.Pod.UID); err != nil && !apierrors.IsNotFound(err) &&
		!apierrors.IsConflict(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	zero, uid := int64(0), f.Pod.UID
	err := w.k.client.CoreV1().Pods(f.Pod.Namespace).Delete(ctx, f.Pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &uid},
	})
	// A conflict means that the API has another pod of this name, which is not this kubelet's to delete.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s: %w", podName(f.Pod), err)
	}
	return nil
}

// recordEvent records an event about a pod.
func (k *Kubelet) recordEvent(p *corev1.Pod, kind, reason, format string, args ...any) {
	if p.Annotations[pod.SourceAnnotation] == "file" {
		if m := k.static.mirrors.find(p); m != nil {
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

// recordContainerEvent records an event about one container of a pod.
func (k *Kubelet) recordContainerEvent(p *corev1.Pod, spec *corev1.Container, kind, reason, format string,
	args ...any) {
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
