package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/cri"
	"clusterctl/daemons/run/measure"
)

// Runtime are the metrics of the kubelet's calls to the runtime, under upstream's names.
type Runtime struct {
	total, errors *prometheus.CounterVec
	seconds       *prometheus.HistogramVec
}

func NewRuntime(r prometheus.Registerer) *Runtime {
	operation := []string{"operation_type"}
	c := &Runtime{
		total: prometheus.NewCounterVec(
			prometheus.CounterOpts{Name: "kubelet_runtime_operations_total", Help: "Calls of the container runtime."},
			operation,
		),
		errors: prometheus.NewCounterVec(
			prometheus.CounterOpts{
				Name: "kubelet_runtime_operations_errors_total",
				Help: "Calls of the container runtime that failed.",
			},
			operation,
		),
		seconds: measure.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_runtime_operations_duration_seconds", Help: "How long calls of the container runtime took.",
			Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14),
		}, operation),
	}
	r.MustRegister(c.total, c.errors, c.seconds)
	return c
}

func (c *Runtime) recordCall(operation string, start time.Time, err error) {
	c.total.WithLabelValues(operation).Inc()
	c.seconds.WithLabelValues(operation).Observe(time.Since(start).Seconds())
	if err != nil {
		c.errors.WithLabelValues(operation).Inc()
	}
}

// Wrap returns a runtime whose calls are counted.
func (c *Runtime) Wrap(runtime cri.Service) cri.Service { return &countedRuntime{runtime, c} }

// countedRuntime counts calls. Methods that it does not override are not counted, such as the event stream, which does
// not end.
type countedRuntime struct {
	cri.Service
	counts *Runtime
}

func (r *countedRuntime) Version(ctx context.Context) (answer *criapi.VersionResponse, err error) {
	defer func(start time.Time) { r.counts.recordCall("version", start, err) }(time.Now())
	return r.Service.Version(ctx)
}

func (r *countedRuntime) Status(ctx context.Context) (answer *criapi.StatusResponse, err error) {
	defer func(start time.Time) { r.counts.recordCall("status", start, err) }(time.Now())
	return r.Service.Status(ctx)
}

func (r *countedRuntime) RunPodSandbox(
	ctx context.Context,
	config *criapi.PodSandboxConfig,
	handler string,
) (id string, err error) {
	defer func(start time.Time) { r.counts.recordCall("run_podsandbox", start, err) }(time.Now())
	return r.Service.RunPodSandbox(ctx, config, handler)
}

func (r *countedRuntime) StopPodSandbox(ctx context.Context, id string) (err error) {
	defer func(start time.Time) { r.counts.recordCall("stop_podsandbox", start, err) }(time.Now())
	return r.Service.StopPodSandbox(ctx, id)
}

func (r *countedRuntime) RemovePodSandbox(ctx context.Context, id string) (err error) {
	defer func(start time.Time) { r.counts.recordCall("remove_podsandbox", start, err) }(time.Now())
	return r.Service.RemovePodSandbox(ctx, id)
}

func (r *countedRuntime) PodSandboxStatus(ctx context.Context, id string) (status *criapi.PodSandboxStatus, err error) {
	defer func(start time.Time) { r.counts.recordCall("podsandbox_status", start, err) }(time.Now())
	return r.Service.PodSandboxStatus(ctx, id)
}

func (r *countedRuntime) ListPodSandbox(
	ctx context.Context,
	filter *criapi.PodSandboxFilter,
) (list []*criapi.PodSandbox, err error) {
	defer func(start time.Time) { r.counts.recordCall("list_podsandbox", start, err) }(time.Now())
	return r.Service.ListPodSandbox(ctx, filter)
}

func (r *countedRuntime) CreateContainer(
	ctx context.Context,
	sandbox string,
	config *criapi.ContainerConfig,
	box *criapi.PodSandboxConfig,
) (id string, err error) {
	defer func(start time.Time) { r.counts.recordCall("create_container", start, err) }(time.Now())
	return r.Service.CreateContainer(ctx, sandbox, config, box)
}

func (r *countedRuntime) StartContainer(ctx context.Context, id string) (err error) {
	defer func(start time.Time) { r.counts.recordCall("start_container", start, err) }(time.Now())
	return r.Service.StartContainer(ctx, id)
}

func (r *countedRuntime) StopContainer(ctx context.Context, id string, grace time.Duration) (err error) {
	defer func(start time.Time) { r.counts.recordCall("stop_container", start, err) }(time.Now())
	return r.Service.StopContainer(ctx, id, grace)
}

func (r *countedRuntime) RemoveContainer(ctx context.Context, id string) (err error) {
	defer func(start time.Time) { r.counts.recordCall("remove_container", start, err) }(time.Now())
	return r.Service.RemoveContainer(ctx, id)
}

func (r *countedRuntime) ListContainers(
	ctx context.Context,
	filter *criapi.ContainerFilter,
) (list []*criapi.Container, err error) {
	defer func(start time.Time) { r.counts.recordCall("list_containers", start, err) }(time.Now())
	return r.Service.ListContainers(ctx, filter)
}

func (r *countedRuntime) ContainerStatus(ctx context.Context, id string) (status *criapi.ContainerStatus, err error) {
	defer func(start time.Time) { r.counts.recordCall("container_status", start, err) }(time.Now())
	return r.Service.ContainerStatus(ctx, id)
}

func (r *countedRuntime) UpdateContainerResources(
	ctx context.Context,
	id string,
	resources *criapi.LinuxContainerResources,
) (err error) {
	defer func(start time.Time) { r.counts.recordCall("update_container", start, err) }(time.Now())
	return r.Service.UpdateContainerResources(ctx, id, resources)
}

func (r *countedRuntime) ExecSync(
	ctx context.Context,
	id string,
	command []string,
	timeout time.Duration,
) (stdout, stderr []byte, code int32, err error) {
	defer func(start time.Time) { r.counts.recordCall("exec_sync", start, err) }(time.Now())
	return r.Service.ExecSync(ctx, id, command, timeout)
}

func (r *countedRuntime) Exec(ctx context.Context, q *criapi.ExecRequest) (url string, err error) {
	defer func(start time.Time) { r.counts.recordCall("exec", start, err) }(time.Now())
	return r.Service.Exec(ctx, q)
}

func (r *countedRuntime) Attach(ctx context.Context, q *criapi.AttachRequest) (url string, err error) {
	defer func(start time.Time) { r.counts.recordCall("attach", start, err) }(time.Now())
	return r.Service.Attach(ctx, q)
}

func (r *countedRuntime) PortForward(ctx context.Context, q *criapi.PortForwardRequest) (url string, err error) {
	defer func(start time.Time) { r.counts.recordCall("port_forward", start, err) }(time.Now())
	return r.Service.PortForward(ctx, q)
}

func (r *countedRuntime) ReopenContainerLog(ctx context.Context, id string) (err error) {
	defer func(start time.Time) { r.counts.recordCall("reopen_container_log", start, err) }(time.Now())
	return r.Service.ReopenContainerLog(ctx, id)
}

func (r *countedRuntime) ListPodSandboxStats(ctx context.Context) (list []*criapi.PodSandboxStats, err error) {
	defer func(start time.Time) { r.counts.recordCall("list_podsandbox_stats", start, err) }(time.Now())
	return r.Service.ListPodSandboxStats(ctx)
}

func (r *countedRuntime) PodMetrics(
	ctx context.Context,
) (about []*criapi.MetricDescriptor, list []*criapi.PodSandboxMetrics, err error) {
	defer func(start time.Time) { r.counts.recordCall("list_pod_sandbox_metrics", start, err) }(time.Now())
	return r.Service.PodMetrics(ctx)
}

func (r *countedRuntime) ImageStatus(ctx context.Context, image string) (status *criapi.Image, err error) {
	defer func(start time.Time) { r.counts.recordCall("image_status", start, err) }(time.Now())
	return r.Service.ImageStatus(ctx, image)
}

func (r *countedRuntime) PullImage(
	ctx context.Context,
	image string,
	auth *criapi.AuthConfig,
	box *criapi.PodSandboxConfig,
) (ref string, err error) {
	defer func(start time.Time) { r.counts.recordCall("pull_image", start, err) }(time.Now())
	return r.Service.PullImage(ctx, image, auth, box)
}

func (r *countedRuntime) ListImages(ctx context.Context) (list []*criapi.Image, err error) {
	defer func(start time.Time) { r.counts.recordCall("list_images", start, err) }(time.Now())
	return r.Service.ListImages(ctx)
}

func (r *countedRuntime) RemoveImage(ctx context.Context, image string) (err error) {
	defer func(start time.Time) { r.counts.recordCall("remove_image", start, err) }(time.Now())
	return r.Service.RemoveImage(ctx, image)
}

func (r *countedRuntime) ImageFsInfo(ctx context.Context) (list []*criapi.FilesystemUsage, err error) {
	defer func(start time.Time) { r.counts.recordCall("image_fs_info", start, err) }(time.Now())
	return r.Service.ImageFsInfo(ctx)
}
