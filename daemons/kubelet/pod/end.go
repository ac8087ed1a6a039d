package pod

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Ended returns how the pod has ended, or nil if it should run.
func Ended(f *Facts) *End {
	if f.Evicted != nil {
		return f.Evicted
	}
	// A pod that has ended in the API stays ended, even if the runtime no longer has its containers.
	if p := f.Pod.Status.Phase; (p == corev1.PodFailed || p == corev1.PodSucceeded) && !IsStatic(f.Pod) {
		return &End{
			Phase:    p,
			Reason:   f.Pod.Status.Reason,
			Message:  f.Pod.Status.Message,
			Rejected: p == corev1.PodFailed && hasNeverStarted(f),
		}
	}
	if at, ok := deadline(f); ok && !f.Now.Before(at) {
		return &End{
			Phase:   corev1.PodFailed,
			Reason:  "DeadlineExceeded",
			Message: "Pod was active on the node longer than the specified deadline",
		}
	}
	return naturalEnd(f)
}

// hasNeverStarted reports whether neither the runtime nor the API knows any container of the pod.
func hasNeverStarted(f *Facts) bool {
	s := &f.Pod.Status
	return len(f.Containers) == 0 && len(f.Sandboxes) == 0 && len(s.ContainerStatuses)+len(s.InitContainerStatuses) == 0
}

// deadline returns when the pod's activeDeadlineSeconds expire.
func deadline(f *Facts) (time.Time, bool) {
	if f.Pod.Spec.ActiveDeadlineSeconds == nil || f.Pod.Status.StartTime == nil {
		return time.Time{}, false
	}
	return f.Pod.Status.StartTime.Add(time.Duration(*f.Pod.Spec.ActiveDeadlineSeconds) * time.Second), true
}

// naturalEnd returns the end that the pod's containers have reached by themselves, or nil.
func naturalEnd(f *Facts) *End {
	box := f.sandbox()
	if box == nil {
		return nil
	}
	for i := range f.Pod.Spec.InitContainers {
		spec := &f.Pod.Spec.InitContainers[i]
		if IsSidecar(spec) {
			continue
		}
		if c := f.attemptIn(spec.Name, box.ID); c != nil && c.State == Exited && c.ExitCode != 0 &&
			!ShouldRestart(f.Pod, spec, c.ExitCode) {
			return &End{Phase: corev1.PodFailed}
		}
	}
	end := &End{Phase: corev1.PodSucceeded}
	for i := range f.Pod.Spec.Containers {
		spec := &f.Pod.Spec.Containers[i]
		c := f.newestAttempt(spec.Name)
		if c == nil || c.State != Exited && c.State != Unknown || ShouldRestart(f.Pod, spec, c.ExitCode) ||
			f.needsRecreate(spec, c) {
			return nil
		}
		if c.ExitCode != 0 || c.State == Unknown {
			end.Phase = corev1.PodFailed
		}
	}
	return end
}

// needsRecreate reports whether an exited container was stopped because its image or size has changed, so that it must
// be created again. A container that the API has as terminated for good is not created again.
func (f *Facts) needsRecreate(spec *corev1.Container, c *Container) bool {
	if _, resized := hasOtherSize(f.Pod, spec, c); !resized && (c.Hash == "" || c.Hash == Hash(spec)) {
		return false
	}
	id := f.RuntimeName + "://" + c.ID
	reported := slices.ContainsFunc(f.Pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == spec.Name && s.ContainerID == id && s.State.Terminated != nil
	})
	return !reported || ShouldRestart(f.Pod, spec, c.ExitCode)
}

// ShouldRestart reports whether a container that exited with the given code should run again.
func ShouldRestart(p *corev1.Pod, spec *corev1.Container, code int32) bool {
	if findEphemeral(p, spec.Name) != nil {
		return false
	}
	for _, rule := range spec.RestartPolicyRules {
		if on := rule.ExitCodes; on != nil &&
			slices.Contains(on.Values, code) == (on.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
			return rule.Action == corev1.ContainerRestartRuleActionRestart
		}
	}
	policy := p.Spec.RestartPolicy
	if spec.RestartPolicy != nil {
		policy = corev1.RestartPolicy(*spec.RestartPolicy)
	} else if policy == corev1.RestartPolicyAlways && isInitContainer(p, spec) {
		policy = corev1.RestartPolicyOnFailure
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return code != 0
	}
	return true
}

func isInitContainer(p *corev1.Pod, spec *corev1.Container) bool {
	return slices.ContainsFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == spec.Name })
}

// Grace returns the grace period for stopping the pod's containers.
func Grace(f *Facts) time.Duration {
	if s := f.Pod.DeletionGracePeriodSeconds; s != nil && f.Pod.DeletionTimestamp != nil {
		return time.Duration(max(*s, 1)) * time.Second
	}
	if f.Evicted != nil && f.Evicted.Reason == "Evicted" {
		return time.Second
	}
	return specGrace(f.Pod)
}

func specGrace(p *corev1.Pod) time.Duration {
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(max(*s, 1)) * time.Second
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

func containerGrace(f *Facts, spec *corev1.Container, failed string) time.Duration {
	probe := spec.LivenessProbe
	if failed == "startup" {
		probe = spec.StartupProbe
	}
	if failed != "" && probe != nil && probe.TerminationGracePeriodSeconds != nil {
		return time.Duration(max(*probe.TerminationGracePeriodSeconds, 1)) * time.Second
	}
	return specGrace(f.Pod)
}

// Hash returns a hash of the container's fields whose change needs a new container.
func Hash(spec *corev1.Container) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s\x00%s", spec.Name, spec.Image)
	return fmt.Sprintf("%x", h.Sum32())
}
