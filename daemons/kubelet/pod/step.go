package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Kind names a step.
type Kind string

// The steps, in the order in which a pod's life has them.
const (
	Prepare          Kind = "prepare"           // directories, cgroup, volumes
	RunSandbox       Kind = "run sandbox"       // Attempt
	Admit            Kind = "admit"             // SandboxID: wait until the pod's network policies hold
	Start            Kind = "start"             // Container, Attempt: pull, create, start, postStart
	Kill             Kind = "kill"              // Container, ID, Grace, Message: one container
	ResizeContainer  Kind = "resize"            // Container, ID: give it the CPU and memory that the pod has
	KillPod          Kind = "kill pod"          // Grace: all containers, then the sandbox
	RemoveContainers Kind = "remove containers" // IDs: dead attempts that nothing needs
	RemoveSandboxes  Kind = "remove sandboxes"  // IDs: dead sandboxes that nothing needs
	Release          Kind = "release"           // give volumes and cgroup back, keep containers for their logs
	Remove           Kind = "remove"            // everything that is left, then the API object
	Rest             Kind = "rest"              // nothing until At, or until something changes
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
	Restart   bool      // Start: an earlier attempt ended, which counts for the back-off
	KeepLogs  bool      // RemoveContainers: their logs stay
	At        time.Time // Rest: zero means no time of its own
}

// Next returns the one step that the pod needs now.
func Next(f *Facts) Step {
	if f.Removed || f.Pod.DeletionTimestamp != nil && !IsMirror(f.Pod) {
		if f.anyAlive() {
			return Step{Kind: KillPod, Grace: Grace(f)}
		}
		return Step{Kind: Remove}
	}
	if Ended(f) != nil {
		switch {
		case f.anyAlive():
			return Step{Kind: KillPod, Grace: Grace(f)}
		case !f.Released:
			return Step{Kind: Release}
		case discards(f):
			dead := make([]string, len(f.Containers))
			for i, c := range f.Containers {
				dead[i] = c.ID
			}
			return Step{Kind: RemoveContainers, IDs: dead, KeepLogs: !f.Discard}
		}
		return Step{Kind: Rest}
	}
	if w, ok := f.Waits[""]; ok && f.Now.Before(w.Until) {
		return rest(f, w.Until)
	}
	if !f.Prepared {
		return Step{Kind: Prepare}
	}
	box := f.sandbox()
	if box == nil || !box.Ready || len(box.IPs) == 0 && !box.HostNetwork {
		// What a lost sandbox leaves running has no network any more.
		if f.anyAlive() {
			return Step{Kind: KillPod, Grace: Grace(f)}
		}
		attempt := uint32(0)
		if box != nil {
			attempt = box.Attempt + 1
		}
		return Step{Kind: RunSandbox, Attempt: attempt}
	}
	if step, wait := containers(f, box.ID); step.Kind != "" {
		return admitted(f, box, step)
	} else if step := visit(f, box.ID); step.Kind != "" {
		return admitted(f, box, step)
	} else if step := garbage(f, box.ID); step.Kind != "" {
		return step
	} else {
		if at := nextVisit(f); !at.IsZero() && (wait.IsZero() || at.Before(wait)) {
			wait = at
		}
		return rest(f, wait)
	}
}

// discards reports whether the containers of an ended pod are removed before the pod: those of an evicted pod, to free
// what they have written, and others when the machine is short of disk space, which also removes their logs. The API
// server knows by then how they ended.
func discards(f *Facts) bool {
	over := f.Pod.Status.Phase == corev1.PodFailed || f.Pod.Status.Phase == corev1.PodSucceeded
	return len(f.Containers) > 0 && over && !Static(f.Pod) && (f.Discard || f.Pod.Status.Reason == "Evicted")
}

// admitted puts the question whether the pod's network policies hold before the start of anything in a sandbox for
// which it was not asked.
func admitted(f *Facts, box *Sandbox, step Step) Step {
	if step.Kind == Start && !box.HostNetwork && f.Admitted != box.ID {
		return Step{Kind: Admit, SandboxID: box.ID}
	}
	return step
}

// containers returns the next step of the pod's containers in their sandbox, or
// none and the time before which none can come (zero: no such time).
func containers(f *Facts, box string) (Step, time.Time) {
	var soonest time.Time
	later := func(t time.Time) {
		if soonest.IsZero() || !t.IsZero() && t.Before(soonest) {
			soonest = t
		}
	}
	// Once a container proper exists in this sandbox, initialization was done,
	// even when what did it has been cleaned away.
	initialized := false
	for i := range f.Pod.Spec.Containers {
		initialized = initialized || f.current(f.Pod.Spec.Containers[i].Name, box) != nil
	}
	for i := range f.Pod.Spec.InitContainers {
		spec := &f.Pod.Spec.InitContainers[i]
		c := f.current(spec.Name, box)
		if Sidecar(spec) {
			step, wait := alive(f, spec, box)
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
		step, wait := alive(f, spec, box)
		later(wait)
		return step, soonest
	}
	for i := range f.Pod.Spec.Containers {
		step, wait := alive(f, &f.Pod.Spec.Containers[i], box)
		if step.Kind != "" {
			return step, time.Time{}
		}
		later(wait)
	}
	return Step{}, soonest
}

// alive returns what it takes to have one container running, as far as its restart
// policy wants that.
func alive(f *Facts, spec *corev1.Container, box string) (Step, time.Time) {
	c := f.current(spec.Name, box)
	if w, ok := f.Waits[spec.Name]; ok && f.Now.Before(w.Until) && (c == nil || c.State != Running) {
		if w.BackoffReason != "" && f.Now.Sub(w.At) < settle {
			return Step{}, w.At.Add(settle)
		}
		return Step{}, w.Until
	}
	start := Step{Kind: Start, Container: spec.Name, SandboxID: box, Attempt: f.nextAttempt(spec.Name)}
	switch {
	case c == nil:
		// What was completed in a sandbox that is lost is not done again.
		if old := f.newest(spec.Name); old != nil && old.State == Exited && !isInit(f.Pod, spec) &&
			!ShouldRestart(f.Pod, spec, old.ExitCode) {
			return Step{}, time.Time{}
		}
		return start, time.Time{}
	case c.State == Created:
		// Creating succeeded and starting did not: make a new one in its place.
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
		if is, restart := misfit(f.Pod, spec, c); restart {
			kill.Message = "Container " + spec.Name + " resize requires restart"
			return kill, time.Time{}
		} else if is {
			if until := f.Resize.Held[spec.Name]; f.Now.Before(until) {
				return Step{}, until
			}
			return Step{Kind: ResizeContainer, Container: spec.Name, ID: c.ID}, time.Time{}
		}
		return Step{}, time.Time{}
	case f.anew(spec, c):
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

// rest waits for the given time, the pod's deadline or the end of a failure's
// first showing, whichever comes first.
func rest(f *Facts, until time.Time) Step {
	if deadline, ok := deadline(f); ok && (until.IsZero() || deadline.Before(until)) {
		until = deadline
	}
	return Step{Kind: Rest, At: until}
}

// garbage returns what can go: attempts before the last but one (whose log
// `kubectl logs --previous` shows), and sandboxes that nothing is in.
func garbage(f *Facts, box string) Step {
	seen := map[string]int{}
	used := map[string]bool{box: true}
	var dead []string
	for _, c := range f.Containers {
		if c.State == Exited || c.State == Unknown {
			if seen[c.Name]++; seen[c.Name] > 2 || seen[c.Name] > 1 && c.Name != "" && newestRuns(f, c.Name) {
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

func newestRuns(f *Facts, name string) bool {
	c := f.newest(name)
	return c != nil && c.State == Running
}
