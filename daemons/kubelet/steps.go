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
		return stepResult{err: w.steps.runSandbox(ctx, f, step.Attempt)}
	case pod.Admit:
		return stepResult{err: w.steps.awaitPolicies(ctx, f)}
	case pod.Start:
		return stepResult{err: w.startContainer(ctx, f, step)}
	case pod.ResizeContainer:
		return stepResult{err: w.resizeContainer(ctx, f, step)}
	case pod.Kill:
		w.k.events.record(f.Pod, corev1.EventTypeNormal, "Killing", "%s", step.Message)
		return stepResult{err: w.steps.killContainer(ctx, f, step.Container, step.ID, step.Grace)}
	case pod.KillPod:
		return stepResult{err: w.steps.killPod(ctx, f, step.Grace)}
	case pod.RemoveContainers:
		var errs []error
		for _, id := range step.IDs {
			errs = append(errs, w.k.runtime.RemoveContainer(ctx, id))
			if !step.KeepLogs {
				errs = append(errs, w.steps.removeLog(f, id))
			}
		}
		return stepResult{err: errors.Join(errs...)}
	case pod.RemoveSandboxes:
		var errs []error
		for _, id := range step.IDs {
			errs = append(errs, w.steps.removeSandbox(ctx, id))
		}
		return stepResult{err: errors.Join(errs...)}
	case pod.Release:
		return stepResult{err: w.steps.release(ctx, f)}
	case pod.Remove:
		return stepResult{err: w.steps.removePod(ctx, f)}
	}
	return stepResult{}
}

// stepRunner carries out the parts of steps that need no state of a worker.
type stepRunner struct{ k *Kubelet }

// removeLog removes the log of one attempt of a container, including its rotated parts.
func (r stepRunner) removeLog(f *pod.Facts, id string) error {
	var errs []error
	for _, c := range f.Containers {
		if c.ID != id {
			continue
		}
		errs = append(errs, r.k.logs.Remove(f.Pod, c.Name, c.Attempt))
	}
	return errors.Join(errs...)
}

func (w *worker) preparePod(ctx context.Context, f *pod.Facts) stepResult {
	if err := w.k.devices.Prepare(ctx, f.Pod); err != nil {
		return stepResult{err: &devicesError{err}}
	}
	// withPod registers the pod as a user of the objects that are read, so that their changes wake its worker.
	start := time.Now()
	again, err := w.k.volumes.Setup(withPod(ctx, f.Pod.UID), f.Pod)
	w.k.metrics.RecordMount(f.Pod, "volume_mount", start, err)
	if err != nil {
		return stepResult{err: err}
	}
	// The limits are written when the pod's resources have changed, and once after each start of the kubelet.
	limits := w.k.limits().podCgroupLimits(f.Pod)
	if pod.HasResizingContainers(f) {
		limits = limits.Max(w.inbox.size.limits) // other containers still have to shrink
	}
	if limits, again = w.fitLimits(ctx, f, limits, again); limits != w.inbox.size.limits {
		w.k.housekeepers.shares.Update()
		if err := w.k.cgroups.Make(w.k.cgroups.Parent(f.Pod), limits); err != nil {
			return stepResult{err: fmt.Errorf("make the pod's cgroup: %w", err)}
		}
		w.setLimits(limits)
	}
	if !w.volumes.prepared {
		if err := w.k.logs.Create(w.k.logs.Pod(f.Pod)); err != nil {
			return stepResult{err: fmt.Errorf("make the pod's log directory: %w", err)}
		}
	}
	return stepResult{refreshAt: again}
}

// runtimeHandler returns the runtime handler of the pod's RuntimeClass, or "" for the default handler.
func (r stepRunner) runtimeHandler(ctx context.Context, p *corev1.Pod) (string, error) {
	class := p.Spec.RuntimeClassName
	if class == nil {
		return "", nil
	}
	rc, err := r.k.client.NodeV1().RuntimeClasses().Get(ctx, *class, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("look up runtime class %s: %w", *class, err)
	}
	return rc.Handler, nil
}

func (r stepRunner) runSandbox(ctx context.Context, f *pod.Facts, attempt uint32) error {
	handler, err := r.runtimeHandler(ctx, f.Pod)
	if err != nil {
		return err
	}
	box, err := r.sandboxConfig(f.Pod, attempt)
	if err != nil {
		return err
	}
	_, omitted := r.k.resolver.PodConfig(f.Pod)
	for _, message := range omitted {
		r.k.events.record(f.Pod, corev1.EventTypeWarning, "DNSConfigForming", "%s", message)
	}
	_, err = r.k.runtime.RunPodSandbox(ctx, box, handler)
	return err
}

// awaitPolicies waits until the network policies for the pod's newest sandbox are in effect.
func (r stepRunner) awaitPolicies(ctx context.Context, f *pod.Facts) error {
	return admitpod.Admit(ctx, r.k.cfg.NetworkPolicySocket, admitpod.Pod{
		UID: string(f.Pod.UID), Namespace: f.Pod.Namespace, Name: f.Pod.Name, IPs: f.Sandboxes[0].IPs,
	})
}

func (r stepRunner) nodeSettings(p *corev1.Pod) (cri.NodeSettings, error) {
	host, err := kernelName(p, r.k.file.ClusterDomain)
	if err != nil {
		return cri.NodeSettings{}, err
	}
	dns, _ := r.k.resolver.PodConfig(p)
	return cri.NodeSettings{
		LogRoot: string(r.k.logs), CgroupParent: r.k.cgroups.Parent(p), Hostname: host,
		DNS: dns, Memory: r.k.limits().memoryCapacity(), Unified: r.k.limits().containerMemory(),
		SeccompRoot: filepath.Join(r.k.cfg.RootDir, "seccomp"),
	}, nil
}

func (r stepRunner) sandboxConfig(p *corev1.Pod, attempt uint32) (*criapi.PodSandboxConfig, error) {
	place, err := r.nodeSettings(p)
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

func (r stepRunner) removeSandbox(ctx context.Context, id string) error {
	if err := r.k.runtime.StopPodSandbox(ctx, id); err != nil {
		return err
	}
	return r.k.runtime.RemovePodSandbox(ctx, id)
}

// release frees the machine resources that an ended pod holds. It keeps the containers, because their logs are still
// needed.
func (r stepRunner) release(ctx context.Context, f *pod.Facts) error {
	r.k.objects.removePod(f.Pod.UID)
	if err := r.k.devices.Unprepare(ctx, f.Pod.UID); err != nil {
		r.k.events.record(f.Pod, corev1.EventTypeWarning, "FailedUnprepareDynamicResources",
			"Failed to unprepare dynamic resources: %v", err)
		return err
	}
	start := time.Now()
	err := r.k.volumes.Teardown(string(f.Pod.UID))
	r.k.metrics.RecordMount(f.Pod, "volume_unmount", start, err)
	if err != nil {
		return err
	}
	return r.k.cgroups.Remove(r.k.cgroups.Parent(f.Pod))
}

// removePod removes everything that is left of a pod. It deletes the pod's API object last, which signals that the
// removal is complete.
func (r stepRunner) removePod(ctx context.Context, f *pod.Facts) error {
	for _, s := range f.Sandboxes {
		if err := r.removeSandbox(ctx, s.ID); err != nil {
			return err
		}
	}
	for _, c := range f.Containers {
		if err := r.k.runtime.RemoveContainer(ctx, c.ID); err != nil {
			return err
		}
	}
	if err := r.release(ctx, f); err != nil {
		return err
	}
	if err := r.k.logs.RemoveAll(r.k.logs.Pod(f.Pod)); err != nil {
		return fmt.Errorf("remove the pod's logs: %w", err)
	}
	if f.Removed || pod.IsStatic(f.Pod) {
		return nil
	}
	if err := r.k.status.writeStatus(ctx, f.Pod.UID); err != nil && !apierrors.IsNotFound(err) &&
		!apierrors.IsConflict(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	zero, uid := int64(0), f.Pod.UID
	err := r.k.client.CoreV1().Pods(f.Pod.Namespace).Delete(ctx, f.Pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &uid},
	})
	// A conflict means that the API has another pod of this name, which is not this kubelet's to delete.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s: %w", podName(f.Pod), err)
	}
	return nil
}
