package why

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func explainPod(ctx context.Context, x explainer, ref Ref) (*finding, error) {
	p, err := read(ctx, ref, x.core().Pods(ref.Namespace))
	if err != nil {
		return nil, err
	}
	return x.pod().podFinding(ctx, p), nil
}

// podFinding returns why a pod is in its state.
func (x podExplainer) podFinding(ctx context.Context, p *corev1.Pod) *finding {
	switch {
	case p.DeletionTimestamp != nil:
		return x.terminatingPod(ctx, p)
	case p.Status.Phase == corev1.PodSucceeded:
		return healthy("has finished successfully")
	case p.Status.Phase == corev1.PodFailed:
		return x.failedPod(ctx, p)
	case p.Spec.NodeName == "":
		return x.schedule().unscheduledPod(ctx, p)
	}
	if f := x.node().podOnLostNode(ctx, p); f != nil {
		return f
	}
	if f := x.brokenContainer(ctx, p); f != nil {
		return f
	}
	if condition := podCondition(p, corev1.PodReady); condition != nil && condition.Status == corev1.ConditionTrue {
		return healthyPod(p)
	}
	if f := unmetGate(p); f != nil {
		return f
	}
	if len(p.Status.ContainerStatuses) == 0 || isWaiting(p) {
		return x.notStarted(ctx, p)
	}
	return broken(refTo("Pod", p), "is not ready", "its readiness has not been reported yet",
		"status.conditions[Ready]", describeRemedy(refTo("Pod", p)))
}

// isWaiting reports whether a container of a pod waits for its first start.
func isWaiting(p *corev1.Pod) bool {
	return slices.ContainsFunc(allStatuses(p), func(s corev1.ContainerStatus) bool {
		return s.State.Waiting != nil
	})
}

// allStatuses returns the states of the init containers, and then of the others.
func allStatuses(p *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
}

func podCondition(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == kind {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// describeRemedy is the remedy for causes that only the events or the logs of an object can narrow down.
func describeRemedy(ref Ref) Remedy {
	return Remedy{Text: "Read the state and the events of " + ref.String() + ".",
		Command: "kubectl describe " + kubectlName(ref)}
}

func healthyPod(p *corev1.Pod) *finding {
	for _, s := range p.Status.ContainerStatuses {
		if ended := s.LastTerminationState.Terminated; s.RestartCount > 0 && ended != nil {
			return healthy("runs and is ready; container %s was restarted %s, the last time after exit code %d (%s)",
				s.Name, count(s.RestartCount, "time"), ended.ExitCode, cmp.Or(ended.Reason, "no reason"))
		}
	}
	return healthy("runs and is ready")
}

// unmetGate returns the finding of a pod whose readiness gates are not all true.
func unmetGate(p *corev1.Pod) *finding {
	for _, gate := range p.Spec.ReadinessGates {
		condition := podCondition(p, gate.ConditionType)
		if condition != nil && condition.Status == corev1.ConditionTrue {
			continue
		}
		reason := fmt.Sprintf("its readiness gate %s is not true", gate.ConditionType)
		if condition != nil && condition.Message != "" {
			reason += ": " + condition.Message
		}
		return broken(refTo("Pod", p), "is not ready", reason, "spec.readinessGates", Remedy{
			Text: fmt.Sprintf("Check the controller that sets the condition %s.", gate.ConditionType),
		})
	}
	return nil
}

// terminatingPod returns why a pod that is being deleted still exists.
func (x podExplainer) terminatingPod(ctx context.Context, p *corev1.Pod) *finding {
	const state = "is still terminating"
	ref := refTo("Pod", p)
	if f := x.node().lostNode(ctx, p); f != nil {
		f = f.below(ref, state, "its node must confirm that its containers have stopped", "metadata.deletionTimestamp")
		f.remedy(Remedy{
			Text:    "If the machine is off for good, delete the pod without waiting for its node.",
			Command: "kubectl delete " + kubectlName(ref) + " --force --grace-period=0",
		})
		return f
	}
	running := slices.ContainsFunc(allStatuses(p), func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil
	})
	if !running {
		if f := finalizerFinding(ref, state, p); f != nil {
			return f
		}
	}
	if until := p.DeletionTimestamp.Time; x.now.Before(until) {
		return healthy("is being deleted; its containers have time until %s", until.UTC().Format(time.RFC3339))
	}
	events := x.eventsOf(ctx, ref, p)
	if e := findEvent(events, "FailedKillPod", "FailedPreStopHook"); e != nil {
		return broken(ref, state, e.Message, eventEvidence(e), describeRemedy(ref))
	}
	return broken(ref, state, "its grace period has ended and the kubelet has not confirmed that it stopped",
		"metadata.deletionTimestamp", Remedy{
			Text: "Read the kubelet's log on node " + p.Spec.NodeName + ".", Command: kubeletLog(p.Spec.NodeName),
		})
}

// deleteFailed returns what the deletion of a failed pod does.
func deleteFailed(p *corev1.Pod) string {
	if metav1.GetControllerOf(p) == nil {
		return "Delete the failed pod, and create it again. It has no controller that would do so."
	}
	return "Delete the failed pod. If its controller has not created another one yet, it does then."
}

// failedPod returns the finding of a pod that has ended and is not restarted.
func (x podExplainer) failedPod(ctx context.Context, p *corev1.Pod) *finding {
	const state = "has failed"
	ref := refTo("Pod", p)
	message := cmp.Or(clause(p.Status.Message), "no reason was reported")
	switch p.Status.Reason {
	case "":
	case "Evicted":
		return broken(ref, state, "its node evicted it: "+message, "status.message", Remedy{
			Text:  "Request as much as the pod uses, so that it is scheduled where there is room and evicted late.",
			Field: x.template().field(ctx, p, "containers[*].resources.requests")}, Remedy{
			Text: deleteFailed(p), Command: "kubectl delete " + kubectlName(ref)})
	case "DeadlineExceeded":
		return broken(ref, state, "it ran longer than its activeDeadlineSeconds", "status.reason", Remedy{
			Text: "Allow more time.", Field: x.template().field(ctx, p, "activeDeadlineSeconds")})
	case "Preempting", "Preempted":
		return broken(ref, state, "a pod of higher priority took its place", "status.reason", Remedy{
			Text: "Give the pod a higher priority class.", Field: x.template().field(ctx, p, "priorityClassName")})
	default:
		return broken(ref, state, fmt.Sprintf("its node %s rejected or ended it (%s): %s", p.Spec.NodeName,
			p.Status.Reason, message), "status.reason", Remedy{
			Text:    deleteFailed(p),
			Command: "kubectl delete " + kubectlName(ref)})
	}
	if f := x.brokenContainer(ctx, p); f != nil {
		f.state = state
		return f
	}
	return broken(ref, state, message, "status.phase", describeRemedy(ref))
}

// brokenContainer returns the finding of the first container that is not as it should be, or nil. Others are steps.
func (x podExplainer) brokenContainer(ctx context.Context, p *corev1.Pod) *finding {
	const maxOthers = 2
	var first *finding
	others := 0
	for _, s := range allStatuses(p) {
		f := x.container().containerFinding(ctx, p, s)
		switch {
		case f == nil:
		case first == nil:
			first = f
		case others < maxOthers:
			others++
			first.steps = append(first.steps, f.steps...)
			first.remedy(f.remedies...)
		}
	}
	return first
}

// notStarted returns why no container of a pod that has a node was started.
func (x podExplainer) notStarted(ctx context.Context, p *corev1.Pod) *finding {
	const state = "does not run"
	ref := refTo("Pod", p)
	if f := x.storage().unboundClaim(ctx, p); f != nil {
		return f.below(ref, state, "its volumes are not complete", "spec.volumes")
	}
	events := x.eventsOf(ctx, ref, p)
	e := findEvent(events, "FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedCreatePodSandBox",
		"NetworkNotReady", "FailedPrepareDynamicResources", "FailedToRetrieveImagePullSecret", "VolumeNotResponding",
		"FailedBinding", "FailedResourceClaimCreation")
	if e != nil {
		if f := x.reference().missingByMessage(ctx, p, e.Message, eventEvidence(e)); f != nil {
			f.state = state
			return f
		}
	}
	if f := x.reference().missingReference(ctx, p); f != nil {
		f.state = state
		return f
	}
	if e != nil {
		reason, remedy := startEventReason(p, e)
		return broken(ref, state, reason, eventEvidence(e), remedy, describeRemedy(ref))
	}
	if pulling := findEvent(events, "Pulling"); pulling != nil &&
		pulling == findEvent(events, "Pulling", "Pulled", "Failed") {
		return broken(ref, state, fmt.Sprintf("its image is being pulled since %s: %s",
			EventTime(pulling).UTC().Format(time.RFC3339), clause(pulling.Message)), eventEvidence(pulling), Remedy{
			Text: "Wait, or use a smaller image.", Command: "kubectl get " + kubectlName(ref) + " --watch"})
	}
	reason := fmt.Sprintf("the kubelet of node %s has not started it and reports no reason", p.Spec.NodeName)
	if !x.mayReadEvents(p.Namespace) {
		reason = fmt.Sprintf("the kubelet of node %s has not started it, and its events could not be read",
			p.Spec.NodeName)
	}
	return broken(ref, state, reason, "status.containerStatuses", Remedy{Text: "Read the kubelet's log.",
		Command: kubeletLog(p.Spec.NodeName)})
}

// startEventReason explains an event about a pod that was not started.
func startEventReason(p *corev1.Pod, e *corev1.Event) (string, Remedy) {
	node := p.Spec.NodeName
	switch e.Reason {
	case "FailedCreatePodSandBox":
		return fmt.Sprintf("node %s cannot create its sandbox: %s", node, clause(e.Message)),
			Remedy{Text: "Check the container runtime and the network of node " + node + ".",
				Command: "clusterctl ssh " + node + " journalctl -u containerd -n 50"}
	case "NetworkNotReady":
		return clause(e.Message), Remedy{Text: "Check the network daemon of node " + node + ".",
			Command: "clusterctl ssh " + node + " journalctl -u kube-network -n 50"}
	case "FailedAttachVolume":
		return "a volume cannot be attached to its node: " + clause(e.Message),
			Remedy{Text: "Check whether the volume is still attached to another node.",
				Command: "kubectl get volumeattachments"}
	case "VolumeNotResponding":
		return clause(e.Message), Remedy{Text: "Check the disk or the server of the volume."}
	case "FailedPrepareDynamicResources", "FailedResourceClaimCreation":
		return "its devices are not ready: " + clause(e.Message),
			Remedy{Text: "Check its claims.", Command: "kubectl get -n " + p.Namespace + " resourceclaims"}
	case "FailedToRetrieveImagePullSecret":
		return "a pull secret cannot be read: " + clause(e.Message),
			Remedy{Text: "Create the secret, or correct its name.", Field: "spec.imagePullSecrets"}
	}
	return "a volume cannot be mounted: " + clause(e.Message),
		Remedy{Text: "Correct the volume.", Field: "spec.volumes of " + refTo("Pod", p).String()}
}
