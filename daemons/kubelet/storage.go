package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"

	"clusterctl/daemons/kubelet/cri"
)

// storage is how much of the machine's disk a pod takes, in bytes.
type storage struct {
	containers map[string]int64 // what each container wrote into its own file system, and its log
	volumes    int64            // the pod's volumes, and the files that it shares with the kubelet
}

func (s storage) sum() int64 {
	sum := s.volumes
	for _, bytes := range s.containers {
		sum += bytes
	}
	return sum
}

// layers returns what each container wrote into its own file system, as the runtime counts it, by pod and name.
func (k *Kubelet) layers(ctx context.Context) (map[types.UID]map[string]int64, error) {
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

// stored counts what a pod takes of the disk.
func (k *Kubelet) stored(p *corev1.Pod, layers map[string]int64) storage {
	s := storage{containers: map[string]int64{}, volumes: k.volumes.Stored(p)}
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

// logBytes returns how much the logs of a container take, with their older parts.
func (k *Kubelet) logBytes(p *corev1.Pod, container string) (sum int64) {
	err := k.inLogs(func(root *os.Root) error {
		dir := k.logName(filepath.Join(cri.LogDir(k.logRoot, p), container))
		return fs.WalkDir(root.FS(), dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			if info, err := d.Info(); err == nil {
				sum += info.Size()
			}
			return nil
		})
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.env.Log.Debug("count a container's logs", "pod", key(p), "container", container, "error", err)
	}
	return sum // what could not be counted whole is as much at least
}

// limitsStorage reports whether a pod may take a limited amount of the disk.
func limitsStorage(p *corev1.Pod) bool {
	_, limited := resource.PodLimits(p, resource.PodResourcesOptions{})[corev1.ResourceEphemeralStorage]
	return limited
}

// overStorage returns why a pod that has limits has to go for what it takes of the disk, or nothing.
func overStorage(p *corev1.Pod, s storage) string {
	limits := resource.PodLimits(p, resource.PodResourcesOptions{})
	if whole, limited := limits[corev1.ResourceEphemeralStorage]; limited && s.sum() > whole.Value() {
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
