package housekeeping

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/logs"
)

// StatsRuntime returns the usage of the node's pods.
type StatsRuntime interface {
	ListPodSandboxStats(ctx context.Context) ([]*criapi.PodSandboxStats, error)
}

// Storage measures what pods store on the machine's disk.
type Storage struct {
	Runtime StatsRuntime
	Volumes interface {
		// DiskUsage returns the size of a pod's volumes in bytes.
		DiskUsage(p *corev1.Pod) int64
		// ExceededLimit returns why a pod is evicted for a volume of it, or "".
		ExceededLimit(p *corev1.Pod) string
	}
	Logs logs.Dir
	Log  *slog.Logger
}

// diskUsage is a pod's usage of the machine's disk, in bytes.
type diskUsage struct {
	containers map[string]int64 // by container: its writable layer and its logs
	volumes    int64            // the pod's volumes, and the files that the kubelet shares with it
}

func (s diskUsage) total() int64 {
	sum := s.volumes
	for _, bytes := range s.containers {
		sum += bytes
	}
	return sum
}

// layerSizes returns the size of each container's writable layer as reported by the runtime, by pod UID and container
// name.
func (s *Storage) layerSizes(ctx context.Context) (map[types.UID]map[string]int64, error) {
	stats, err := s.Runtime.ListPodSandboxStats(ctx)
	if err != nil {
		return nil, fmt.Errorf("count what containers wrote: %w", err)
	}
	found := map[types.UID]map[string]int64{}
	for _, b := range stats {
		uid := types.UID(b.GetAttributes().GetMetadata().GetUid())
		if found[uid] == nil {
			found[uid] = map[string]int64{}
		}
		for _, c := range b.GetLinux().GetContainers() {
			found[uid][c.GetAttributes().GetMetadata().GetName()] += int64(
				c.GetWritableLayer().GetUsedBytes().GetValue(),
			)
		}
	}
	return found, nil
}

// usage returns a pod's disk usage.
func (s *Storage) usage(p *corev1.Pod, layers map[string]int64) diskUsage {
	u := diskUsage{containers: map[string]int64{}, volumes: s.Volumes.DiskUsage(p)}
	for _, c := range containerNames(p) {
		u.containers[c] = layers[c] + s.logBytes(p, c)
	}
	return u
}

func containerNames(p *corev1.Pod) []string {
	var names []string
	for i := range p.Spec.InitContainers {
		names = append(names, p.Spec.InitContainers[i].Name)
	}
	for i := range p.Spec.Containers {
		names = append(names, p.Spec.Containers[i].Name)
	}
	for i := range p.Spec.EphemeralContainers {
		names = append(names, p.Spec.EphemeralContainers[i].Name)
	}
	return names
}

// logBytes returns the size of a container's logs, including rotated parts. On errors it is a lower bound.
func (s *Storage) logBytes(p *corev1.Pod, container string) int64 {
	sum, err := s.Logs.Size(p, container)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Log.Debug("count a container's logs", "pod", podName(p), "container", container, "error", err)
	}
	return sum
}

// hasStorageLimit reports whether a pod has a limit on ephemeral storage.
func hasStorageLimit(p *corev1.Pod) bool {
	_, limited := resource.PodLimits(p, resource.PodResourcesOptions{})[corev1.ResourceEphemeralStorage]
	return limited
}

// storageExcess returns why a pod with limits is evicted for its disk usage, or "" if it is within its limits.
func storageExcess(p *corev1.Pod, s diskUsage) string {
	limits := resource.PodLimits(p, resource.PodResourcesOptions{})
	if whole, limited := limits[corev1.ResourceEphemeralStorage]; limited && s.total() > whole.Value() {
		return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ",
			whole.String())
	}
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		if limit, ok := c.Resources.Limits[corev1.ResourceEphemeralStorage]; ok &&
			s.containers[c.Name] > limit.Value() {
			return fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, limit.String())
		}
	}
	return ""
}

// PodUsage is what the containers of a pod use: bytes of memory, and processes.
type PodUsage struct{ Memory, Processes int64 }

// UsageByPod returns the usage of all pods, as the runtime reports it.
func UsageByPod(ctx context.Context, runtime StatsRuntime) (map[types.UID]PodUsage, error) {
	usage := map[types.UID]PodUsage{}
	stats, err := runtime.ListPodSandboxStats(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range stats {
		uid := types.UID(s.GetAttributes().GetMetadata().GetUid())
		used := usage[uid] // a pod may have a former sandbox, too
		used.Processes += int64(s.GetLinux().GetProcess().GetProcessCount().GetValue())
		for _, c := range s.GetLinux().GetContainers() {
			used.Memory += int64(c.GetMemory().GetWorkingSetBytes().GetValue())
		}
		usage[uid] = used
	}
	return usage, nil
}
