package housekeeping

import (
	"context"
	"log/slog"
	"os"

	"k8s.io/apimachinery/pkg/api/resource"

	"clusterctl/daemons/config"
	"clusterctl/daemons/kubelet/logs"
	"clusterctl/daemons/kubelet/pod"
)

// Rotator rotates the logs of running containers.
type Rotator struct {
	Pods    Pods
	Logs    logs.Dir
	Runtime interface {
		ReopenContainerLog(ctx context.Context, id string) error
	}
	File *config.KubeletFile
	Log  *slog.Logger
}

// Run renames logs that have grown too large, and has the runtime open new ones.
func (r *Rotator) Run(ctx context.Context) {
	maximum, err := resource.ParseQuantity(r.File.ContainerLogMaxSize)
	if err != nil {
		r.Log.Error("logs are not rotated", "containerLogMaxSize", r.File.ContainerLogMaxSize, "error", err)
		return
	}
	for _, s := range r.Pods.Snapshot() {
		p, containers := s.Pod, s.Containers
		for _, c := range containers {
			if c.State != pod.Running {
				continue
			}
			path := r.Logs.Path(p, c.Name, c.Attempt)
			if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Size() < maximum.Value() {
				continue
			}
			reopen := func() error { return r.Runtime.ReopenContainerLog(ctx, c.ID) }
			if err := r.Logs.Rotate(path, r.File.ContainerLogMaxFiles, reopen); err != nil {
				r.Log.Warn("rotate log", "path", path, "error", err)
			}
		}
	}
}
