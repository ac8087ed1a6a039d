// Package pod decides what a pod needs next. Its functions take everything that
// is known about one pod (its specification, what the runtime says, probe results,
// failures, the time) as plain values and return the one next step, or the status to
// report. They do nothing: carrying out steps is the kubelet's loop's.
package pod

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Facts is all that is known about a pod at one moment.
type Facts struct {
	Pod *corev1.Pod
	Now time.Time
	// Removed says that the pod's source (the API or the manifests) no longer has it.
	Removed bool

	Sandboxes  []Sandbox   // newest first
	Containers []Container // newest first, of all sandboxes

	Prepared bool // directories, cgroup and volumes are there
	Released bool // they have been given back after the pod's end
	Discard  bool // the machine wants back what is left of the pod's containers after its end

	Admitted string // the sandbox whose network policies hold, by its id

	Probes  map[string]Probe                   // by container id
	Waits   map[string]Wait                    // by container name; "" is the pod as a whole
	Backoff map[string]Backoff                 // by container name
	Devices map[string][]corev1.ResourceStatus // by container name: how the devices that it was given are
	Evicted *End                               // the node's decision to end the pod; nil when there is none
	Resize  Resize                             // what keeps the pod from the size that the API wants

	HostIPs     []string
	RuntimeName string // containerd
}

// End is how a pod that will not run again has ended.
type End struct {
	Phase           corev1.PodPhase
	Reason, Message string
	Rejected        bool // before anything of the pod was begun
	Pressed         bool // the machine was short of something, which is not the pod's fault
}

// Sandbox is what the runtime says about a pod sandbox.
type Sandbox struct {
	ID          string
	Attempt     uint32
	Ready       bool
	Created     time.Time
	IPs         []string
	HostNetwork bool
}

// State is a container's state.
type State int

// The states that CRI knows.
const (
	Created State = iota
	Running
	Exited
	Unknown
)

// Container is what the runtime says about one attempt to run a container.
type Container struct {
	ID, Name, SandboxID        string
	Attempt                    uint32
	State                      State
	Created, Started, Finished time.Time
	ExitCode                   int32
	Reason, Message            string
	Image, ImageID             string
	Hash                       string                // of the specification that it was made from
	Size                       *Size                 // nil when the runtime does not say
	User                       *corev1.ContainerUser // whom it was begun as; nil when the runtime does not say
	StopSignal                 *corev1.Signal        // nil when the runtime does not say
	ReadOnly                   []string              // where something is mounted read-only all the way down
}

// Probe is what probes have found of one container.
type Probe struct {
	Started bool   // the startup probe has succeeded, or there is none
	Ready   bool   // the readiness probe succeeds, or there is none
	Failed  string // "liveness" or "startup" when that probe has failed for good
}

// Wait is why something is not tried again before a time.
type Wait struct {
	Reason, Message               string // at first
	BackoffReason, BackoffMessage string // from a second later on; empty keeps Reason
	Image                         string // that could not be had: the container's, or one that it mounts
	At, Until                     time.Time
}

const settle = time.Second // how long a Wait shows its first reason

func (w Wait) shown(now time.Time) (reason, message string) {
	if w.BackoffReason != "" && now.Sub(w.At) >= settle {
		return w.BackoffReason, w.BackoffMessage
	}
	return w.Reason, w.Message
}

// Mirror and static pods carry these annotations, as upstream's do.
const (
	SourceAnnotation = "kubernetes.io/config.source"
	HashAnnotation   = "kubernetes.io/config.hash"
	MirrorAnnotation = "kubernetes.io/config.mirror"
)

// Static reports whether a pod comes from a manifest rather than the API.
func Static(p *corev1.Pod) bool { return p.Annotations[SourceAnnotation] == "file" }

// IsMirror reports whether an API pod only mirrors a static one.
func IsMirror(p *corev1.Pod) bool { return p.Annotations[MirrorAnnotation] != "" }

// Sidecar reports whether an init container keeps running beside the others.
func Sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// newest returns the newest attempt of a container in any sandbox.
func (f *Facts) newest(name string) *Container {
	for i := range f.Containers {
		if f.Containers[i].Name == name {
			return &f.Containers[i]
		}
	}
	return nil
}

// current returns the newest attempt of a container in the given sandbox.
func (f *Facts) current(name, sandbox string) *Container {
	for i := range f.Containers {
		if c := &f.Containers[i]; c.Name == name && c.SandboxID == sandbox {
			return c
		}
	}
	return nil
}

func (f *Facts) nextAttempt(name string) uint32 {
	if c := f.newest(name); c != nil {
		return c.Attempt + 1
	}
	return 0
}

func (f *Facts) sandbox() *Sandbox {
	if len(f.Sandboxes) == 0 {
		return nil
	}
	return &f.Sandboxes[0]
}

func (f *Facts) anyAlive() bool {
	return slices.ContainsFunc(f.Containers, func(c Container) bool { return c.State == Running }) ||
		slices.ContainsFunc(f.Sandboxes, func(s Sandbox) bool { return s.Ready })
}

// probe returns the probes' findings of a container; before the first finding, a
// container without the probe counts as having passed it.
func (f *Facts) probe(spec *corev1.Container, c *Container) Probe {
	if p, ok := f.Probes[c.ID]; ok {
		return p
	}
	return Probe{Started: spec.StartupProbe == nil, Ready: spec.StartupProbe == nil && spec.ReadinessProbe == nil}
}
