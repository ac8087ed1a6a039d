// Package cri is the kubelet's interface to the container runtime: CRI v1 over a unix socket, and the translation of
// pod specs into CRI requests. Package daemons/kubelet/pod decides when to send which request.
package cri

import (
	"context"
	"io"
	"time"

	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is the part of CRI's RuntimeService that the kubelet uses. Client is the real implementation. Package hollow
// has a simulated one.
type Runtime interface {
	Version(ctx context.Context) (*runtime.VersionResponse, error)
	// Status returns the state of the runtime, and the features of the runtime and its handlers.
	Status(ctx context.Context) (*runtime.StatusResponse, error)
	// RecursiveReadOnly reports whether a handler supports recursive read-only mounts.
	RecursiveReadOnly(ctx context.Context, handler string) (bool, error)

	RunPodSandbox(ctx context.Context, config *runtime.PodSandboxConfig, handler string) (id string, err error)
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
	PodSandboxStatus(ctx context.Context, id string) (*runtime.PodSandboxStatus, error)
	ListPodSandbox(ctx context.Context, filter *runtime.PodSandboxFilter) ([]*runtime.PodSandbox, error)

	CreateContainer(
		ctx context.Context,
		sandbox string,
		config *runtime.ContainerConfig,
		box *runtime.PodSandboxConfig,
	) (id string, err error)
	StartContainer(ctx context.Context, id string) error
	// StopContainer stops a container and waits until it has ended. The container is killed after grace.
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	ListContainers(ctx context.Context, filter *runtime.ContainerFilter) ([]*runtime.Container, error)
	ContainerStatus(ctx context.Context, id string) (*runtime.ContainerStatus, error)

	// UpdateContainerResources changes the CPU and memory of a running container.
	UpdateContainerResources(ctx context.Context, id string, resources *runtime.LinuxContainerResources) error

	ExecSync(
		ctx context.Context,
		id string,
		command []string,
		timeout time.Duration,
	) (stdout, stderr []byte, code int32, err error)
	// Exec, Attach and PortForward return the URL at which the runtime serves the stream.
	Exec(ctx context.Context, r *runtime.ExecRequest) (url string, err error)
	Attach(ctx context.Context, r *runtime.AttachRequest) (url string, err error)
	PortForward(ctx context.Context, r *runtime.PortForwardRequest) (url string, err error)

	ReopenContainerLog(ctx context.Context, id string) error
	ListPodSandboxStats(ctx context.Context) ([]*runtime.PodSandboxStats, error)
	// PodMetrics returns the pod metrics that have cAdvisor's names, and their descriptions. It returns ErrNoMetrics if
	// the runtime does not provide them.
	PodMetrics(ctx context.Context) ([]*runtime.MetricDescriptor, []*runtime.PodSandboxMetrics, error)
	// Events calls seen with the pod UID for each change of a container or sandbox. It calls seen with "" once it
	// listens, because earlier changes were not reported. It returns when the stream ends, with ErrNoEvents if the
	// runtime has no events.
	Events(ctx context.Context, seen func(podUID string)) error
}

// Images is the part of CRI's ImageService that the kubelet uses.
type Images interface {
	// ImageStatus returns nil without an error if the image does not exist.
	ImageStatus(ctx context.Context, image string) (*runtime.Image, error)
	PullImage(
		ctx context.Context,
		image string,
		auth *runtime.AuthConfig,
		box *runtime.PodSandboxConfig,
	) (ref string, err error)
	ListImages(ctx context.Context) ([]*runtime.Image, error)
	RemoveImage(ctx context.Context, image string) error
	ImageFsInfo(ctx context.Context) ([]*runtime.FilesystemUsage, error)
}

// Service combines the runtime and image services.
type Service interface {
	Runtime
	Images
	io.Closer
}

// These labels identify sandboxes and containers. They are upstream's, because crictl and log collectors read them.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"

	annotationHash        = "io.kubernetes.container.hash"
	annotationRestarts    = "io.kubernetes.container.restartCount"
	annotationMessagePath = "io.kubernetes.container.terminationMessagePath"
	annotationPolicy      = "io.kubernetes.container.terminationMessagePolicy"
	// AnnotationGrace records a pod's grace period. It is needed when the API no longer has the pod.
	AnnotationGrace = "io.kubernetes.pod.terminationGracePeriod"
)
