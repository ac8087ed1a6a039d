package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Kind names a step.
type Kind string

// These are the steps, in the order of a pod's life. Each comment starts with the fields of Step that are set.
const (
	Prepare          Kind = "prepare"           // create directories, cgroup and volumes
	RunSandbox       Kind = "run sandbox"       // Attempt
	Admit            Kind = "admit"             // SandboxID: wait until the pod's network policies are in effect
	Start            Kind = "start"             // Container, Attempt: pull, create, start, postStart
	Kill             Kind = "kill"              // Container, ID, Grace, Message: stop one container
	ResizeContainer  Kind = "resize"            // Container, ID: apply the pod's CPU and memory
	KillPod          Kind = "kill pod"          // Grace: stop all containers, then the sandbox
	RemoveContainers Kind = "remove containers" // IDs: remove ended attempts that are no longer needed
	RemoveSandboxes  Kind = "remove sandboxes"  // IDs: remove dead sandboxes that are no longer needed
	Release          Kind = "release"           // release volumes and cgroup, keep containers for their logs
	Remove           Kind = "remove"            // remove everything that is left, then the API object
	Rest             Kind = "rest"              // do nothing until At, or until something changes
)

// Step is what a pod needs next.
type Step struct {
	Kind      Kind
	Container string
	Attempt   uint32
	ID        string
	IDs       []string
	SandboxID string
	Grace     time.Duration
	Message   string
	Restart   bool      // Start: an earlier attempt has ended, which counts for the back-off
	KeepLogs  bool      // RemoveContainers: keep their logs
	At        time.Time // Rest: zero means that there is no fixed time
}

// Next returns the next step of the pod.
func Next(f *Facts) Step {
	if f.Removed || f.Pod.DeletionTimestamp != nil && !IsMirror(f.Pod) {
		if f.hasLiveContainer() {
			return Step{Kind: KillPod, Grace: Grace(f)}
		}
		return Step{Kind: Remove}
	}
	if Ended(f) != nil {
		switch {
		case f.hasLiveContainer():
			return Step{Kind: KillPod, Grace: Grace(f)}
		case !f.Released:
			return Step{Kind: Release}
		case needsDiscard(f):
			dead := make([]string, len(f.Containers))
			for i, c := range f.Containers {
				dead[i] = c.ID
			}
			return Step{Kind: RemoveContainers, IDs: dead, KeepLogs: !f.DiscardRequested}
		}
		return Step{Kind: Rest}
	}
	if w, ok := f.Waits[""]; ok && f.Now.Before(w.Until) {
		return restStep(f, w.Until)
	}
	if !f.Prepared {
		return Step{Kind: Prepare}
	}
	box := f.sandbox()
	if box == nil || !box.Ready || len(box.IPs) == 0 && !box.HostNetwork {
		// Containers that still run in a lost sandbox have no network any more.
		if f.hasLiveContainer() {
			return Step{Kind: KillPod, Grace: Grace(f)}
		}
		attempt := uint32(0)
		if box != nil {
			attempt = box.Attempt + 1
		}
		return Step{Kind: RunSandbox, Attempt: attempt}
	}
	if step, wait := containersStep(f, box.ID); step.Kind != "" {
		return requireAdmission(f, box, step)
	} else if step := startEphemeral(f, box.ID); step.Kind != "" {
		return requireAdmission(f, box, step)
	} else if step := garbageStep(f, box.ID); step.Kind != "" {
		return step
	} else {
		if at := nextEphemeralStart(f); !at.IsZero() && (wait.IsZero() || at.Before(wait)) {
			wait = at
		}
		return restStep(f, wait)
	}
}

// needsDiscard reports whether the containers of an ended pod are removed before the pod. Those of an evicted pod are,
// to free their data. Others are when the machine is short of disk space, which also removes their logs. The API server
// already knows how they ended.
func needsDiscard(f *Facts) bool {
	isOver := f.Pod.Status.Phase == corev1.PodFailed || f.Pod.Status.Phase == corev1.PodSucceeded
	return len(f.Containers) > 0 && isOver && !IsStatic(f.Pod) &&
		(f.DiscardRequested || f.Pod.Status.Reason == "Evicted")
}

// requireAdmission returns Admit instead of a Start in a sandbox whose network policies are not yet known to be in
// effect.
func requireAdmission(f *Facts, box *Sandbox, step Step) Step {
	if step.Kind == Start && !box.HostNetwork && f.AdmittedSandbox != box.ID {
		return Step{Kind: Admit, SandboxID: box.ID}
	}
	return step
}

// containersStep returns the next step for the pod's containers in their sandbox. If there is none, it returns the time
// until which none can come; zero means that there is no such time.
func containersStep(f *Facts, box string) (Step, time.Time) {
	var soonest time.Time
	later := func(t time.Time) {
		if soonest.IsZero() || !t.IsZero() && t.Before(soonest) {
			soonest = t
		}
	}
	// If a regular container exists in this sandbox, initialization was completed, even if the init containers were
	// removed since.
	initialized := false
	for i := range f.Pod.Spec.Containers {
		initialized = initialized || f.attemptIn(f.Pod.Spec.Containers[i].Name, box) != nil
	}
	for i := range f.Pod.Spec.InitContainers {
		spec := &f.Pod.Spec.InitContainers[i]
		c := f.attemptIn(spec.Name, box)
		if IsSidecar(spec) {
			step, wait := containerStep(f, spec, box)
			if step.Kind != "" {
				return step, time.Time{}
			}
			later(wait)
			if !initialized && (c == nil || c.State != Running || !f.probe(spec, c).Started) {
				return Step{}, soonest
			}
			continue
		}
		if initialized || c != nil && c.State == Exited && c.ExitCode == 0 {
			continue
		}
		step, wait := containerStep(f, spec, box)
		later(wait)
		return step, soonest
	}
	for i := range f.Pod.Spec.Containers {
		step, wait := containerStep(f, &f.Pod.Spec.Containers[i], box)
		if step.Kind != "" {
			return step, time.Time{}
		}
		later(wait)
	}
	return Step{}, soonest
}

// containerStep returns the next step to get one container running, if its restart policy wants that.
func containerStep(f *Facts, spec *corev1.Container, box string) (Step, time.Time) {
	c := f.attemptIn(spec.Name, box)
	if w, ok := f.Waits[spec.Name]; ok && f.Now.Before(w.Until) && (c == nil || c.State != Running) {
		if w.BackoffReason != "" && f.Now.Sub(w.At) < firstReasonTime {
			return Step{}, w.At.Add(firstReasonTime)
		}
		return Step{}, w.Until
	}
	start := Step{Kind: Start, Container: spec.Name, SandboxID: box, Attempt: f.nextAttempt(spec.Name)}
	switch {
	case c == nil:
		// A container that completed in a lost sandbox is not run again.
		if old := f.newestAttempt(spec.Name); old != nil && old.State == Exited && !isInitContainer(f.Pod, spec) &&
			!ShouldRestart(f.Pod, spec, old.ExitCode) {
			return Step{}, time.Time{}
		}
		return start, time.Time{}
	case c.State == Created:
		// The container was created but not started: replace it.
		return Step{Kind: RemoveContainers, IDs: []string{c.ID}}, time.Time{}
	case c.State == Running:
		probe := f.probe(spec, c)
		kill := Step{Kind: Kill, Container: spec.Name, ID: c.ID, Grace: containerGrace(f, spec, probe.Failed)}
		switch {
		case probe.Failed != "":
			kill.Message = "Container " + spec.Name + " failed " + probe.Failed + " probe, will be restarted"
			if !ShouldRestart(f.Pod, spec, 137) {
				kill.Message = "Container " + spec.Name + " failed " + probe.Failed + " probe"
			}
			return kill, time.Time{}
		case c.Hash != "" && c.Hash != Hash(spec):
			kill.Message = "Container " + spec.Name + " definition changed, will be restarted"
			return kill, time.Time{}
		}
		if differs, restart := hasOtherSize(f.Pod, spec, c); restart {
			kill.Message = "Container " + spec.Name + " resize requires restart"
			return kill, time.Time{}
		} else if differs {
			if until := f.Resize.NotBefore[spec.Name]; f.Now.Before(until) {
				return Step{}, until
			}
			return Step{Kind: ResizeContainer, Container: spec.Name, ID: c.ID}, time.Time{}
		}
		return Step{}, time.Time{}
	case f.needsRecreate(spec, c):
		return start, time.Time{}
	case !ShouldRestart(f.Pod, spec, c.ExitCode):
		return Step{}, time.Time{}
	}
	if until := f.Backoff[spec.Name].Until(c.Finished, f.Now); f.Now.Before(until) {
		return Step{}, until
	}
	start.Restart = true
	return start, time.Time{}
}

// restStep returns a Rest step until the given time, or until the pod's deadline if that is earlier.
func restStep(f *Facts, until time.Time) Step {
	if deadline, ok := deadline(f); ok && (until.IsZero() || deadline.Before(until)) {
		until = deadline
	}
	return Step{Kind: Rest, At: until}
}

// garbageStep returns the step that removes unneeded containers and empty sandboxes. The last two attempts of a
// container are kept, because `kubectl logs --previous` shows the log of the last but one.
func garbageStep(f *Facts, box string) Step {
	seen := map[string]int{}
	used := map[string]bool{box: true}
	var dead []string
	for _, c := range f.Containers {
		if c.State == Exited || c.State == Unknown {
			if seen[c.Name]++; seen[c.Name] > 2 || seen[c.Name] > 1 && c.Name != "" && isNewestRunning(f, c.Name) {
				dead = append(dead, c.ID)
				continue
			}
		}
		used[c.SandboxID] = true
	}
	if len(dead) > 0 {
		return Step{Kind: RemoveContainers, IDs: dead}
	}
	for _, s := range f.Sandboxes {
		if !s.Ready && !used[s.ID] {
			dead = append(dead, s.ID)
		}
	}
	if len(dead) > 0 {
		return Step{Kind: RemoveSandboxes, IDs: dead}
	}
	return Step{}
}

func isNewestRunning(f *Facts, name string) bool {
	c := f.newestAttempt(name)
	return c != nil && c.State == Running
}
