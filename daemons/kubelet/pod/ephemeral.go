package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Ephemeral containers are added to a running pod to inspect it. They are started once and never restarted. The pod's
// phase and readiness do not depend on them.

// asContainer converts an ephemeral container to a Container, which has the same fields.
func asContainer(e *corev1.EphemeralContainer) *corev1.Container {
	c := corev1.Container(e.EphemeralContainerCommon)
	return &c
}

func findEphemeral(p *corev1.Pod, name string) *corev1.Container {
	for i := range p.Spec.EphemeralContainers {
		if e := &p.Spec.EphemeralContainers[i]; e.Name == name {
			return asContainer(e)
		}
	}
	return nil
}

// IsEphemeral reports whether the named container of a pod is an ephemeral container.
func IsEphemeral(p *corev1.Pod, name string) bool { return findEphemeral(p, name) != nil }

// Target returns the container whose processes an ephemeral container shares, or "".
func Target(p *corev1.Pod, name string) string {
	for i := range p.Spec.EphemeralContainers {
		if e := &p.Spec.EphemeralContainers[i]; e.Name == name {
			return e.TargetContainerName
		}
	}
	return ""
}

// startEphemeral returns the step for the first ephemeral container that has never run in any sandbox: its start, or
// the removal of an attempt that was created but not started.
func startEphemeral(f *Facts, box string) Step {
	for i := range f.Pod.Spec.EphemeralContainers {
		e := &f.Pod.Spec.EphemeralContainers[i]
		if w, ok := f.Waits[e.Name]; ok && f.Now.Before(w.Until) {
			continue
		}
		switch c := f.newestAttempt(e.Name); {
		case c == nil && !hasRun(f.Pod, e.Name):
			return Step{Kind: Start, Container: e.Name, SandboxID: box}
		case c != nil && c.State == Created:
			return Step{Kind: RemoveContainers, IDs: []string{c.ID}}
		}
	}
	return Step{}
}

// hasRun reports whether an ephemeral container has run according to the pod's status.
func hasRun(p *corev1.Pod, name string) bool {
	for _, s := range p.Status.EphemeralContainerStatuses {
		if s.Name == name {
			return s.State.Running != nil || s.State.Terminated != nil
		}
	}
	return false
}

// nextEphemeralStart returns when to retry the start of an ephemeral container. Zero means that none waits.
func nextEphemeralStart(f *Facts) time.Time {
	var soonest time.Time
	for i := range f.Pod.Spec.EphemeralContainers {
		name := f.Pod.Spec.EphemeralContainers[i].Name
		w, ok := f.Waits[name]
		if ok && f.Now.Before(w.Until) && f.newestAttempt(name) == nil &&
			(soonest.IsZero() || w.Until.Before(soonest)) {
			soonest = w.Until
		}
	}
	return soonest
}

func ephemeralStatuses(f *Facts, end *End) []corev1.ContainerStatus {
	var all []corev1.ContainerStatus
	for i := range f.Pod.Spec.EphemeralContainers {
		s := containerStatus(f, asContainer(&f.Pod.Spec.EphemeralContainers[i]), false, end)
		s.Ready, s.Started = false, nil
		all = append(all, s)
	}
	return all
}
