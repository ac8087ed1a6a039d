// Package pod decides what a pod needs next. Its functions take everything that is known about one pod as plain values:
// its spec, the state in the runtime, probe results, failures and the time. They return the next step, or the status to
// report. They have no effects; the kubelet's worker carries out the steps.
package pod

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Facts is everything that is known about a pod at one moment.
type Facts struct {
	Pod *corev1.Pod
	Now time.Time
	// Removed reports that the pod's source (the API or the manifests) no longer has it.
	Removed bool

	Sandboxes  []Sandbox   // newest first
	Containers []Container // newest first, of all sandboxes

	Prepared         bool // directories, cgroup and volumes exist
	Released         bool // the directories, cgroup and volumes were released after the pod's end
	DiscardRequested bool // the machine needs the disk space of the ended pod's containers

	AdmittedSandbox string // ID of the sandbox whose network policies are in effect

	Probes  map[string]Probe                   // by container ID
	Waits   map[string]Wait                    // by container name; "" means the whole pod
	Backoff map[string]Backoff                 // by container name
	Devices map[string][]corev1.ResourceStatus // by container name: health of its devices
	Evicted *End                               // the node's decision to end the pod, or nil
	Resize  Resize                             // state of a pending or failed resize

	HostIPs     []string
	RuntimeName string // containerd
}

// End states how a pod that will not run again has ended.
type End struct {
	Phase           corev1.PodPhase
	Reason, Message string
	Rejected        bool // before anything of the pod was started
	IsNodePressure  bool // evicted for a shortage of the machine, which the pod did not cause
}

// Sandbox is the state of a pod sandbox in the runtime.
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

// These are the container states of CRI.
const (
	Created State = iota
	Running
	Exited
	Unknown
)

// Container is the state of one attempt to run a container in the runtime.
type Container struct {
	ID, Name, SandboxID        string
	Attempt                    uint32
	State                      State
	Created, Started, Finished time.Time
	ExitCode                   int32
	Reason, Message            string
	Image, ImageID             string
	Hash                       string                // hash of the spec from which it was created
	Size                       *Size                 // nil if the runtime does not report it
	User                       *corev1.ContainerUser // the user at its start; nil if the runtime does not report it
	StopSignal                 *corev1.Signal        // nil if the runtime does not report it
	ReadOnly                   []string              // paths of recursive read-only mounts
}

// Probe is the state of one container according to its probes.
type Probe struct {
	Started bool   // the startup probe has succeeded, or there is none
	Ready   bool   // the readiness probe succeeds, or there is none
	Failed  string // "liveness" or "startup" if that probe has reached its failure threshold
}

// Wait delays an attempt, and states why.
type Wait struct {
	Reason, Message               string // shown first
	BackoffReason, BackoffMessage string // shown after one second; an empty reason keeps Reason
	Image                         string // image that could not be obtained: the container's or a mounted one
	At, Until                     time.Time
}

const firstReasonTime = time.Second // how long a Wait shows its first reason

func (w Wait) reasonAt(now time.Time) (reason, message string) {
	if w.BackoffReason != "" && now.Sub(w.At) >= firstReasonTime {
		return w.BackoffReason, w.BackoffMessage
	}
	return w.Reason, w.Message
}

// These annotations mark mirror pods and static pods, as upstream's do.
const (
	SourceAnnotation = "kubernetes.io/config.source"
	HashAnnotation   = "kubernetes.io/config.hash"
	MirrorAnnotation = "kubernetes.io/config.mirror"
)

// IsStatic reports whether a pod comes from a manifest instead of the API.
func IsStatic(p *corev1.Pod) bool { return p.Annotations[SourceAnnotation] == "file" }

// IsMirror reports whether an API pod is the mirror of a static pod.
func IsMirror(p *corev1.Pod) bool { return p.Annotations[MirrorAnnotation] != "" }

// IsSidecar reports whether an init container keeps running alongside the other containers.
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// newestAttempt returns the newest attempt of a container in any sandbox.
func (f *Facts) newestAttempt(name string) *Container {
	for i := range f.Containers {
		if f.Containers[i].Name == name {
			return &f.Containers[i]
		}
	}
	return nil
}

// attemptIn returns the newest attempt of a container in the given sandbox.
func (f *Facts) attemptIn(name, sandbox string) *Container {
	for i := range f.Containers {
		if c := &f.Containers[i]; c.Name == name && c.SandboxID == sandbox {
			return c
		}
	}
	return nil
}

func (f *Facts) nextAttempt(name string) uint32 {
	if c := f.newestAttempt(name); c != nil {
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

func (f *Facts) hasLiveContainer() bool {
	return slices.ContainsFunc(f.Containers, func(c Container) bool { return c.State == Running }) ||
		slices.ContainsFunc(f.Sandboxes, func(s Sandbox) bool { return s.Ready })
}

// probe returns the probe state of a container. Before the first result, a container without the respective probe
// counts as having passed it.
func (f *Facts) probe(spec *corev1.Container, c *Container) Probe {
	if p, ok := f.Probes[c.ID]; ok {
		return p
	}
	return Probe{Started: spec.StartupProbe == nil, Ready: spec.StartupProbe == nil && spec.ReadinessProbe == nil}
}
