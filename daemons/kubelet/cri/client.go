package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// These constants limit the calls to the runtime: queries, changes and image pulls, and the size of a response. Calls
// that wait for a container get the waiting time on top.
const (
	queryTimeout  = 20 * time.Second
	changeTimeout = 2 * time.Minute
	pullTimeout   = 30 * time.Minute
	maxMessage    = 16 << 20
	eventDelay    = time.Second // after which the runtime is assumed to deliver events
)

// ErrNoMetrics is returned if the runtime does not provide pod metrics.
var ErrNoMetrics = errors.New("the runtime has no metrics of pods")

// ErrNoEvents is returned if the runtime does not provide container events.
var ErrNoEvents = errors.New("the runtime has no container events")

// Client is a client of CRI v1 over a unix socket. Every call has a time limit, except Events.
type Client struct {
	conn    *grpc.ClientConn
	runtime runtime.RuntimeServiceClient
	images  runtime.ImageServiceClient
}

var _ Service = (*Client)(nil)

// Dial returns a client for the runtime at an endpoint (unix:///path). It connects at the first call, and reconnects
// after the runtime was restarted.
func Dial(endpoint string) (*Client, error) {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok {
		return nil, fmt.Errorf("container runtime endpoint %q: only unix:// sockets are supported", endpoint)
	}
	conn, err := grpc.NewClient("passthrough:///"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.WaitForReady(true)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay:  20 * time.Millisecond,
				Multiplier: 1.6,
				Jitter:     0.2,
				MaxDelay:   2 * time.Second,
			},
			MinConnectTimeout: 3 * time.Second,
		}),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))
	if err != nil {
		return nil, fmt.Errorf("container runtime %s: %w", endpoint, err)
	}
	return &Client{conn, runtime.NewRuntimeServiceClient(conn), runtime.NewImageServiceClient(conn)}, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.conn.Close() }

// IsNotFound reports whether the runtime responded that the object does not exist.
func IsNotFound(err error) bool {
	return status.Code(errors.Unwrap(err)) == codes.NotFound || status.Code(err) == codes.NotFound
}

// Message returns the runtime's error message without the context that the client added.
func Message(err error) string {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Message()
	}
	return err.Error()
}

// callWithTimeout makes one call with a time limit. Its error states what was attempted.
func callWithTimeout[Q, A any](
	ctx context.Context,
	d time.Duration,
	what string,
	f func(context.Context, Q, ...grpc.CallOption) (A, error),
	q Q,
) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	a, err := f(ctx, q)
	if err != nil {
		return a, fmt.Errorf("%s: %w", what, err)
	}
	return a, nil
}

// callUncanceled makes one call with a time limit that is not canceled together with ctx. A runtime that is canceled
// while it creates something can leave processes behind that it does not know.
func callUncanceled[Q, A any](
	ctx context.Context,
	d time.Duration,
	what string,
	f func(context.Context, Q, ...grpc.CallOption) (A, error),
	q Q,
) (A, error) {
	if err := ctx.Err(); err != nil {
		var none A
		return none, fmt.Errorf("%s: %w", what, err)
	}
	return callWithTimeout(context.WithoutCancel(ctx), d, what, f, q)
}

// ignoreNotFound turns a "not found" error into success, for deletions.
func ignoreNotFound(err error) error {
	if err != nil && IsNotFound(err) {
		return nil
	}
	return err
}

// Version implements Runtime.
func (c *Client) Version(ctx context.Context) (*runtime.VersionResponse, error) {
	return callWithTimeout(ctx, queryTimeout, "ask the runtime's version", c.runtime.Version, &runtime.VersionRequest{})
}

// Status implements Runtime.
func (c *Client) Status(ctx context.Context) (*runtime.StatusResponse, error) {
	return callWithTimeout(ctx, queryTimeout, "ask the runtime's status", c.runtime.Status, &runtime.StatusRequest{})
}

// RecursiveReadOnly implements Runtime.
func (c *Client) RecursiveReadOnly(ctx context.Context, handler string) (bool, error) {
	r, err := callWithTimeout(ctx, queryTimeout, "ask what the runtime's handlers can "+
		"do", c.runtime.Status, &runtime.StatusRequest{})
	return canMountRecursive(r.GetRuntimeHandlers(), handler), err
}

func canMountRecursive(handlers []*runtime.RuntimeHandler, name string) bool {
	for _, h := range handlers {
		if h.Name == name {
			return h.GetFeatures().GetRecursiveReadOnlyMounts()
		}
	}
	return false
}

// RunPodSandbox implements Runtime.
func (c *Client) RunPodSandbox(ctx context.Context, config *runtime.PodSandboxConfig, handler string) (string, error) {
	r, err := callUncanceled(ctx, 2*changeTimeout, "run sandbox", c.runtime.RunPodSandbox,
		&runtime.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	return r.GetPodSandboxId(), err
}

// StopPodSandbox implements Runtime.
func (c *Client) StopPodSandbox(ctx context.Context, id string) error {
	_, err := callWithTimeout(ctx, changeTimeout, "stop sandbox "+id, c.runtime.StopPodSandbox,
		&runtime.StopPodSandboxRequest{PodSandboxId: id})
	return ignoreNotFound(err)
}

// RemovePodSandbox implements Runtime.
func (c *Client) RemovePodSandbox(ctx context.Context, id string) error {
	_, err := callWithTimeout(ctx, changeTimeout, "remove sandbox "+id, c.runtime.RemovePodSandbox,
		&runtime.RemovePodSandboxRequest{PodSandboxId: id})
	return ignoreNotFound(err)
}

// PodSandboxStatus implements Runtime.
func (c *Client) PodSandboxStatus(ctx context.Context, id string) (*runtime.PodSandboxStatus, error) {
	r, err := callWithTimeout(ctx, queryTimeout, "ask the status of sandbox "+id, c.runtime.PodSandboxStatus,
		&runtime.PodSandboxStatusRequest{PodSandboxId: id})
	return r.GetStatus(), err
}

// ListPodSandbox implements Runtime.
func (c *Client) ListPodSandbox(ctx context.Context, filter *runtime.PodSandboxFilter) ([]*runtime.PodSandbox, error) {
	r, err := callWithTimeout(ctx, queryTimeout, "list sandboxes", c.runtime.ListPodSandbox,
		&runtime.ListPodSandboxRequest{Filter: filter})
	return r.GetItems(), err
}

// CreateContainer implements Runtime.
func (c *Client) CreateContainer(
	ctx context.Context,
	sandbox string,
	config *runtime.ContainerConfig,
	box *runtime.PodSandboxConfig,
) (string, error) {
	r, err := callUncanceled(ctx, changeTimeout, "create container", c.runtime.CreateContainer,
		&runtime.CreateContainerRequest{PodSandboxId: sandbox, Config: config, SandboxConfig: box})
	return r.GetContainerId(), err
}

// StartContainer implements Runtime.
func (c *Client) StartContainer(ctx context.Context, id string) error {
	_, err := callUncanceled(ctx, changeTimeout, "start container "+id, c.runtime.StartContainer,
		&runtime.StartContainerRequest{ContainerId: id})
	return err
}

// StopContainer implements Runtime.
func (c *Client) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	_, err := callWithTimeout(ctx, grace+changeTimeout, "stop container "+id, c.runtime.StopContainer,
		&runtime.StopContainerRequest{ContainerId: id, Timeout: int64((grace + time.Second - 1) / time.Second)})
	return ignoreNotFound(err)
}

// RemoveContainer implements Runtime.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	_, err := callWithTimeout(ctx, changeTimeout, "remove container "+id, c.runtime.RemoveContainer,
		&runtime.RemoveContainerRequest{ContainerId: id})
	return ignoreNotFound(err)
}

// ListContainers implements Runtime.
func (c *Client) ListContainers(ctx context.Context, filter *runtime.ContainerFilter) ([]*runtime.Container, error) {
	r, err := callWithTimeout(ctx, queryTimeout, "list containers", c.runtime.ListContainers,
		&runtime.ListContainersRequest{Filter: filter})
	return r.GetContainers(), err
}

// ContainerStatus implements Runtime.
func (c *Client) ContainerStatus(ctx context.Context, id string) (*runtime.ContainerStatus, error) {
	r, err := callWithTimeout(ctx, queryTimeout, "ask the status of container "+id, c.runtime.ContainerStatus,
		&runtime.ContainerStatusRequest{ContainerId: id})
	return r.GetStatus(), err
}

// UpdateContainerResources implements Runtime.
func (c *Client) UpdateContainerResources(
	ctx context.Context,
	id string,
	resources *runtime.LinuxContainerResources,
) error {
	_, err := callWithTimeout(ctx, changeTimeout, "resize container "+id, c.runtime.UpdateContainerResources,
		&runtime.UpdateContainerResourcesRequest{ContainerId: id, Linux: resources})
	return err
}

// ExecSync implements Runtime.
func (c *Client) ExecSync(
	ctx context.Context,
	id string,
	command []string,
	timeout time.Duration,
) ([]byte, []byte, int32, error) {
	r, err := callWithTimeout(
		ctx,
		timeout+queryTimeout,
		"run a command in container "+id,
		c.runtime.ExecSync,
		&runtime.ExecSyncRequest{
			ContainerId: id,
			Cmd:         command,
			Timeout:     int64((timeout + time.Second - 1) / time.Second),
		},
	)
	return r.GetStdout(), r.GetStderr(), r.GetExitCode(), err
}

// Exec implements Runtime.
func (c *Client) Exec(ctx context.Context, q *runtime.ExecRequest) (string, error) {
	r, err := callWithTimeout(ctx, queryTimeout, "prepare exec", c.runtime.Exec, q)
	return r.GetUrl(), err
}

// Attach implements Runtime.
func (c *Client) Attach(ctx context.Context, q *runtime.AttachRequest) (string, error) {
	r, err := callWithTimeout(ctx, queryTimeout, "prepare attach", c.runtime.Attach, q)
	return r.GetUrl(), err
}

// PortForward implements Runtime.
func (c *Client) PortForward(ctx context.Context, q *runtime.PortForwardRequest) (string, error) {
	r, err := callWithTimeout(ctx, queryTimeout, "prepare port forwarding", c.runtime.PortForward, q)
	return r.GetUrl(), err
}

// ReopenContainerLog implements Runtime.
func (c *Client) ReopenContainerLog(ctx context.Context, id string) error {
	_, err := callWithTimeout(ctx, queryTimeout, "reopen the log of container "+id, c.runtime.ReopenContainerLog,
		&runtime.ReopenContainerLogRequest{ContainerId: id})
	return err
}

// ListPodSandboxStats implements Runtime.
func (c *Client) ListPodSandboxStats(ctx context.Context) ([]*runtime.PodSandboxStats, error) {
	r, err := callWithTimeout(ctx, queryTimeout, "list usage", c.runtime.ListPodSandboxStats,
		&runtime.ListPodSandboxStatsRequest{})
	return r.GetStats(), err
}

// PodMetrics implements Runtime.
func (c *Client) PodMetrics(ctx context.Context) ([]*runtime.MetricDescriptor, []*runtime.PodSandboxMetrics, error) {
	about, err := callWithTimeout(ctx, queryTimeout, "list the descriptions of metrics",
		c.runtime.ListMetricDescriptors, &runtime.ListMetricDescriptorsRequest{})
	if err != nil {
		if status.Code(errors.Unwrap(err)) == codes.Unimplemented {
			err = ErrNoMetrics
		}
		return nil, nil, err
	}
	r, err := callWithTimeout(ctx, queryTimeout, "list the metrics of pods", c.runtime.ListPodSandboxMetrics,
		&runtime.ListPodSandboxMetricsRequest{})
	return about.GetDescriptors(), r.GetPodMetrics(), err
}

// Events implements Runtime.
func (c *Client) Events(ctx context.Context, seen func(string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.runtime.GetContainerEvents(ctx, &runtime.GetEventsRequest{})
	if err != nil {
		return fmt.Errorf("watch container events: %w", err)
	}
	// The runtime sends nothing before the first event, not even a confirmation that it listens.
	listens := time.AfterFunc(eventDelay, func() { seen("") })
	defer listens.Stop()
	for {
		event, err := stream.Recv()
		switch {
		case status.Code(err) == codes.Unimplemented:
			return ErrNoEvents
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("watch container events: %w", err)
		}
		if uid := event.GetPodSandboxStatus().GetMetadata().GetUid(); uid != "" {
			seen(uid)
		}
	}
}

// ImageStatus implements Images.
func (c *Client) ImageStatus(ctx context.Context, image string) (*runtime.Image, error) {
	r, err := callWithTimeout(ctx, queryTimeout, "look for image "+image, c.images.ImageStatus,
		&runtime.ImageStatusRequest{Image: &runtime.ImageSpec{Image: image}})
	return r.GetImage(), err
}

// PullImage implements Images.
func (c *Client) PullImage(
	ctx context.Context,
	image string,
	auth *runtime.AuthConfig,
	box *runtime.PodSandboxConfig,
) (string, error) {
	r, err := callWithTimeout(ctx, pullTimeout, "pull image "+image, c.images.PullImage,
		&runtime.PullImageRequest{Image: &runtime.ImageSpec{Image: image}, Auth: auth, SandboxConfig: box})
	return r.GetImageRef(), err
}

// ListImages implements Images.
func (c *Client) ListImages(ctx context.Context) ([]*runtime.Image, error) {
	r, err := callWithTimeout(ctx, queryTimeout, "list images", c.images.ListImages, &runtime.ListImagesRequest{})
	return r.GetImages(), err
}

// RemoveImage implements Images.
func (c *Client) RemoveImage(ctx context.Context, image string) error {
	_, err := callWithTimeout(ctx, changeTimeout, "remove image "+image, c.images.RemoveImage,
		&runtime.RemoveImageRequest{Image: &runtime.ImageSpec{Image: image}})
	return ignoreNotFound(err)
}

// ImageFsInfo implements Images.
func (c *Client) ImageFsInfo(ctx context.Context) ([]*runtime.FilesystemUsage, error) {
	r, err := callWithTimeout(ctx, queryTimeout, "ask for the image file "+
		"system", c.images.ImageFsInfo, &runtime.ImageFsInfoRequest{})
	return r.GetImageFilesystems(), err
}
