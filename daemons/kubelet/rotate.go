package kubelet

import (
	"context"
	"os"

	"k8s.io/apimachinery/pkg/api/resource"

	"clusterctl/daemons/kubelet/pod"
)

// rotateLogs renames logs that have grown too large, and has the runtime open new ones.
func (k *Kubelet) rotateLogs(ctx context.Context) {
	most, err := resource.ParseQuantity(k.file.ContainerLogMaxSize)
	if err != nil {
		k.env.Log.Error("logs are not rotated", "containerLogMaxSize", k.file.ContainerLogMaxSize, "error", err)
		return
	}
	for _, w := range k.allWorkers() {
		w.mu.Lock()
		p, containers := w.pod, w.containers
		w.mu.Unlock()
		for _, c := range containers {
			if c.State != pod.Running {
				continue
			}
			path := k.logs.Path(p, c.Name, c.Attempt)
			if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Size() < most.Value() {
				continue
			}
			reopen := func() error { return k.runtime.ReopenContainerLog(ctx, c.ID) }
			if err := k.logs.Rotate(path, k.file.ContainerLogMaxFiles, reopen); err != nil {
				k.env.Log.Warn("rotate log", "path", path, "error", err)
			}
		}
	}
}
