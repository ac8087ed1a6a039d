package hollow

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ExecSync implements cri.Runtime. Every command succeeds without output, except `false`.
func (r *Runtime) ExecSync(
	_ context.Context,
	id string,
	command []string,
	_ time.Duration,
) (stdout, stderr []byte, code int32, err error) {
	if err := r.countCall("ExecSync"); err != nil {
		return nil, nil, 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c == nil || c.state != runtime.ContainerState_CONTAINER_RUNNING {
		return nil, nil, 0, notFound("running container", id)
	}
	if len(command) > 0 && command[0] == "false" {
		return nil, nil, 1, nil
	}
	return nil, nil, 0, nil
}

var errNoStreams = status.Error(codes.Unimplemented, "a hollow node runs no processes to connect to")

// Exec implements cri.Runtime.
func (r *Runtime) Exec(context.Context, *runtime.ExecRequest) (string, error) {
	return "", errNoStreams
}

// Attach implements cri.Runtime.
func (r *Runtime) Attach(context.Context, *runtime.AttachRequest) (string, error) {
	return "", errNoStreams
}

// PortForward implements cri.Runtime.
func (r *Runtime) PortForward(context.Context, *runtime.PortForwardRequest) (string, error) {
	return "", errNoStreams
}

// ReopenContainerLog implements cri.Runtime.
func (r *Runtime) ReopenContainerLog(context.Context, string) error {
	return r.countCall("ReopenContainerLog")
}
