package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"
)

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
func (k *Kubelet) layerSizes(ctx context.Context) (map[types.UID]map[string]int64, error) {
	stats, err := k.runtime.ListPodSandboxStats(ctx)
	if err != nil {
		return nil, fmt.Errorf("count what containers wrote: %w", err)
	}
	found := map[types.UID]map[string]int64{}
	for _, s := range stats {
		uid := types.UID(s.GetAttributes().GetMetadata().GetUid())
		if found[uid] == nil {
			found[uid] = map[string]int64{}
		}
		for _, c := range s.GetLinux().GetContainers() {
			found[uid][c.GetAttributes().GetMetadata().GetName()] += int64(
				c.GetWritableLayer().GetUsedBytes().GetValue(),
			)
		}
	}
	return found, nil
}

// podDiskUsage returns a pod's disk usage.
func (k *Kubelet) podDiskUsage(p *corev1.Pod, layers map[string]int64) diskUsage {
	s := diskUsage{containers: map[string]int64{}, volumes: k.volumes.DiskUsage(p)}
	for _, c := range containerNames(p) {
		s.containers[c] = layers[c] + k.logBytes(p, c)
	}
	return s
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
func (k *Kubelet) logBytes(p *corev1.Pod, container string) int64 {
	sum, err := k.logs.Size(p, container)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.env.Log.Debug("count a container's logs", "pod", podName(p), "container", container, "error", err)
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
		return fmt.Sprintf(
			"Pod ephemeral local storage usage exceeds the total limit of containers %s. ",
			whole.String(),
		)
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
