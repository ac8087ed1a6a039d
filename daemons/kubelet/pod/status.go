package pod

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Status returns the status to report for a pod. It keeps the conditions that other components own. A condition's
// transition time changes only with its status.
func Status(f *Facts) corev1.PodStatus {
	old := f.Pod.Status
	s := corev1.PodStatus{
		QOSClass: QOS(f.Pod), StartTime: old.StartTime, ObservedGeneration: f.Pod.Generation,
		NominatedNodeName: old.NominatedNodeName, ResourceClaimStatuses: old.ResourceClaimStatuses,
		ExtendedResourceClaimStatus: old.ExtendedResourceClaimStatus,
	}
	if s.StartTime == nil {
		now := metav1.NewTime(f.Now.Truncate(1e9))
		s.StartTime = &now
	}
	if len(f.HostIPs) > 0 {
		s.HostIP = f.HostIPs[0]
		for _, ip := range f.HostIPs {
			s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: ip})
		}
	}
	if ips := podIPs(f); len(ips) > 0 {
		s.PodIP = ips[0]
		for _, ip := range ips {
			s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: ip})
		}
	}
	end := Ended(f)
	if end != nil && end.Rejected {
		// Containers that were never started get no status. A waiting state would announce that they will start.
		s.Phase, s.Reason, s.Message = end.Phase, end.Reason, end.Message
		s.Conditions = retainedConditions(f)
		return s
	}
	for i := range f.Pod.Spec.InitContainers {
		s.InitContainerStatuses = append(s.InitContainerStatuses, withSizes(f, &f.Pod.Spec.InitContainers[i],
			containerStatus(f, &f.Pod.Spec.InitContainers[i], true, end)))
	}
	for i := range f.Pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, withSizes(f, &f.Pod.Spec.Containers[i],
			containerStatus(f, &f.Pod.Spec.Containers[i], false, end)))
	}
	s.EphemeralContainerStatuses = ephemeralStatuses(f, end)
	sort.Slice(s.ContainerStatuses,
		func(i, j int) bool { return s.ContainerStatuses[i].Name < s.ContainerStatuses[j].Name })
	switch {
	case end != nil && !f.hasLiveContainer():
		// The phase is terminal only when all containers have ended, because other components rely on that.
		s.Phase, s.Reason, s.Message = end.Phase, end.Reason, end.Message
	case end != nil && (old.Phase == corev1.PodFailed || old.Phase == corev1.PodSucceeded):
		s.Phase, s.Reason, s.Message = old.Phase, old.Reason, old.Message
	case end != nil:
		s.Phase, s.Reason, s.Message = corev1.PodRunning, end.Reason, end.Message
	default:
		s.Phase = phase(f)
	}
	if f.Pod.DeletionTimestamp != nil && !f.hasLiveContainer() && s.Phase == corev1.PodRunning {
		s.Phase = endPhase(s.ContainerStatuses)
	}
	s.AllocatedResources, s.Resources = podResources(f.Pod, s.Phase)
	if f.Resize.IsPodPending && old.Resources != nil {
		s.Resources = old.Resources // the pod's cgroup still has the previous size
	}
	s.Conditions = conditions(f, &s)
	return s
}

// endPhase returns the phase of a pod whose containers were all stopped from outside.
func endPhase(all []corev1.ContainerStatus) corev1.PodPhase {
	for _, c := range all {
		if c.State.Terminated == nil || c.State.Terminated.ExitCode != 0 {
			return corev1.PodFailed
		}
	}
	return corev1.PodSucceeded
}

func podIPs(f *Facts) []string {
	if f.Pod.Spec.HostNetwork {
		return f.HostIPs
	}
	if box := f.sandbox(); box != nil && (box.Ready || len(box.IPs) > 0) {
		return box.IPs
	}
	// An ended pod keeps its last addresses.
	var ips []string
	if f.Pod.DeletionTimestamp != nil || Ended(f) != nil {
		for _, ip := range f.Pod.Status.PodIPs {
			ips = append(ips, ip.IP)
		}
	}
	return ips
}

// phase returns the phase of a pod that has not ended.
func phase(f *Facts) corev1.PodPhase {
	if !IsInitialized(f) {
		return corev1.PodPending
	}
	for i := range f.Pod.Spec.Containers {
		if c := f.newestAttempt(f.Pod.Spec.Containers[i].Name); c == nil || c.State == Created {
			return corev1.PodPending
		}
	}
	return corev1.PodRunning
}

// IsInitialized reports whether all init containers have completed. Sidecars must have started.
func IsInitialized(f *Facts) bool {
	box := f.sandbox()
	if box == nil {
		return len(f.Pod.Spec.InitContainers) == 0
	}
	for i := range f.Pod.Spec.Containers {
		if f.attemptIn(f.Pod.Spec.Containers[i].Name, box.ID) != nil {
			return true
		}
	}
	for i := range f.Pod.Spec.InitContainers {
		spec := &f.Pod.Spec.InitContainers[i]
		c := f.attemptIn(spec.Name, box.ID)
		switch {
		case c == nil:
			return false
		case IsSidecar(spec):
			if c.State == Running && !f.probe(spec, c).Started || c.State == Created {
				return false
			}
		case c.State != Exited || c.ExitCode != 0:
			return false
		}
	}
	return true
}

func containerStatus(f *Facts, spec *corev1.Container, init bool, end *End) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: spec.Name, Image: spec.Image,
		VolumeMounts: mountStatuses(spec, f.newestAttempt(spec.Name))}
	no := false
	s.Started = &no
	attempts := []*Container{}
	for i := range f.Containers {
		if c := &f.Containers[i]; c.Name == spec.Name && c.State != Created {
			attempts = append(attempts, c)
		}
	}
	if len(attempts) == 0 {
		return unstartedStatus(f, s, init && !IsSidecar(spec), end)
	}
	c := attempts[0]
	s.RestartCount = int32(c.Attempt)
	s.ContainerID = f.RuntimeName + "://" + c.ID
	s.ImageID, s.User = c.ImageID, c.User
	// Report the signal only if the spec sets one, not the image's default.
	if l := spec.Lifecycle; l != nil && l.StopSignal != nil {
		s.StopSignal = c.StopSignal
	}
	if c.Image != "" {
		s.Image = c.Image
	}
	if len(attempts) > 1 && attempts[1].State != Running {
		s.LastTerminationState.Terminated = terminatedState(f, attempts[1])
	}
	if c.State == Running {
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.Started.Truncate(1e9))}
		probe := f.probe(spec, c)
		s.Started = &probe.Started
		// other init containers are ready when they have completed
		s.Ready = probe.Ready && probe.Started && (!init || IsSidecar(spec))
		return s
	}
	s.State.Terminated = terminatedState(f, c)
	s.Ready = init && !IsSidecar(spec) && c.ExitCode == 0 && c.State == Exited
	stopping := end != nil || f.Pod.DeletionTimestamp != nil || f.Removed
	done := !ShouldRestart(f.Pod, spec, c.ExitCode)
	if stopping || init && !IsSidecar(spec) && c.ExitCode == 0 || done && !f.needsRecreate(spec, c) {
		return s
	}
	if done { // a container that will be created again is not terminated for good
		s.LastTerminationState.Terminated = s.State.Terminated
		s.State = corev1.ContainerState{Waiting: waitingState(f)}
		return s
	}
	// It will run again: report why it waits and how it last ended.
	if until := f.Backoff[spec.Name].Until(c.Finished, f.Now); f.Now.Before(until) {
		s.LastTerminationState.Terminated = s.State.Terminated
		s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason:  "CrashLoopBackOff",
			Message: CrashMessage(f.Pod, spec.Name, f.Backoff[spec.Name]),
		}}
	} else if wait, waits := f.currentWait(spec.Name); waits {
		s.LastTerminationState.Terminated = s.State.Terminated
		reason, message := wait.reasonAt(f.Now)
		s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	return s
}

// unstartedStatus completes the status of a container that the runtime does not have. A container that runs to its end
// is ready when it has succeeded.
func unstartedStatus(f *Facts, s corev1.ContainerStatus, runsToEnd bool, end *End) corev1.ContainerStatus {
	for _, last := range slices.Concat(f.Pod.Status.ContainerStatuses, f.Pod.Status.InitContainerStatuses,
		f.Pod.Status.EphemeralContainerStatuses) {
		// The runtime no longer has the container, but the API has its end.
		if last.Name == s.Name && last.State.Terminated != nil &&
			(end != nil || f.Pod.DeletionTimestamp != nil) {
			last.Ready = runsToEnd && last.State.Terminated.ExitCode == 0
			last.Started = s.Started
			return last
		}
	}
	s.State.Waiting = waitingState(f)
	if pod, ok := f.Waits[""]; ok && strings.HasPrefix(pod.Reason, "Create") {
		s.State.Waiting.Reason, s.State.Waiting.Message = pod.reasonAt(f.Now)
	}
	if wait, waits := f.currentWait(s.Name); waits {
		s.State.Waiting.Reason, s.State.Waiting.Message = wait.reasonAt(f.Now)
	}
	return s
}

// currentWait returns why a container waits, and reports whether the time has not passed yet.
func (f *Facts) currentWait(container string) (w Wait, waits bool) {
	w, waits = f.Waits[container]
	return w, waits && f.Now.Before(w.Until)
}

// CrashMessage returns the message that a container's restart is delayed.
func CrashMessage(p *corev1.Pod, container string, b Backoff) string {
	return fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", b.Delay, container, p.Name,
		p.Namespace, p.UID)
}

func waitingState(f *Facts) *corev1.ContainerStateWaiting {
	if len(f.Pod.Spec.InitContainers) > 0 {
		return &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
	}
	return &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
}

func terminatedState(f *Facts, c *Container) *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{
		ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message,
		StartedAt: metav1.NewTime(c.Started.Truncate(1e9)), FinishedAt: metav1.NewTime(c.Finished.Truncate(1e9)),
		ContainerID: f.RuntimeName + "://" + c.ID,
	}
	switch {
	case c.State == Unknown:
		t.ExitCode, t.Reason = 137, "ContainerStatusUnknown"
		t.Message = "The container could not be located when the pod was terminated"
	case t.Reason == "" && t.ExitCode == 0:
		t.Reason = "Completed"
	case t.Reason == "":
		t.Reason = "Error"
	}
	return t
}
