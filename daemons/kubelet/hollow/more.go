package hollow

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"clusterctl/daemons/kubelet/cgroup"
)

// Events implements cri.Runtime.
func (r *Runtime) Events(ctx context.Context, seen func(string)) error {
	if err := r.begin("Events"); err != nil {
		return err
	}
	news := make(chan string, 1024)
	r.mu.Lock()
	r.listeners[news] = true
	r.mu.Unlock()
	seen("")
	defer func() {
		r.mu.Lock()
		delete(r.listeners, news)
		r.mu.Unlock()
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case uid := <-news:
			seen(uid)
		}
	}
}

// UpdateContainerResources implements cri.Runtime.
func (r *Runtime) UpdateContainerResources(_ context.Context, id string, resources *runtime.LinuxContainerResources) error {
	if err := r.begin("UpdateContainerResources"); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil || c.state != runtime.ContainerState_CONTAINER_RUNNING {
		return notFound("running container", id)
	}
	c.config.Linux = &runtime.LinuxContainerConfig{Resources: resources, SecurityContext: c.config.GetLinux().GetSecurityContext()}
	r.tell(r.sandboxes[c.sandbox])
	return nil
}

// ExecSync implements cri.Runtime: every command succeeds and says nothing, but
// for `false`.
func (r *Runtime) ExecSync(_ context.Context, id string, command []string, _ time.Duration) (stdout, stderr []byte, code int32, err error) {
	if err := r.begin("ExecSync"); err != nil {
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
	return r.begin("ReopenContainerLog")
}

// ListPodSandboxStats implements cri.Runtime.
func (r *Runtime) ListPodSandboxStats(context.Context) ([]*runtime.PodSandboxStats, error) {
	if err := r.begin("ListPodSandboxStats"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*runtime.PodSandboxStats
	now := time.Now().UnixNano()
	cpu := &runtime.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: &runtime.UInt64Value{}, UsageNanoCores: &runtime.UInt64Value{}}
	memory := &runtime.MemoryUsage{Timestamp: now, WorkingSetBytes: &runtime.UInt64Value{}}
	for _, b := range r.sandboxes {
		s := &runtime.PodSandboxStats{
			Attributes: &runtime.PodSandboxAttributes{Id: b.id, Metadata: b.config.Metadata, Labels: b.config.Labels},
			Linux:      &runtime.LinuxPodSandboxStats{Cpu: cpu, Memory: memory},
		}
		for _, c := range r.containers {
			if c.sandbox == b.id && c.state == runtime.ContainerState_CONTAINER_RUNNING {
				s.Linux.Containers = append(s.Linux.Containers, &runtime.ContainerStats{
					Attributes: &runtime.ContainerAttributes{Id: c.id, Metadata: c.config.Metadata, Labels: c.config.Labels}, Cpu: cpu, Memory: memory,
				})
			}
		}
		list = append(list, s)
	}
	return list, nil
}

func (r *Runtime) image(name string) *runtime.Image {
	id := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name)))
	return &runtime.Image{Id: id, RepoTags: []string{name}, Size: 1 << 20, Spec: &runtime.ImageSpec{Image: name}}
}

// ImageStatus implements cri.Images.
func (r *Runtime) ImageStatus(_ context.Context, name string) (*runtime.Image, error) {
	if err := r.begin("ImageStatus"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.images[name], nil
}

// PullImage implements cri.Images: every image can be had at once.
func (r *Runtime) PullImage(_ context.Context, name string, _ *runtime.AuthConfig, _ *runtime.PodSandboxConfig) (string, error) {
	if err := r.begin("PullImage"); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.image(name)
	r.images[name] = i
	return i.Id, nil
}

// ListImages implements cri.Images.
func (r *Runtime) ListImages(context.Context) ([]*runtime.Image, error) {
	if err := r.begin("ListImages"); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*runtime.Image
	for _, i := range r.images {
		list = append(list, i)
	}
	return list, nil
}

// RemoveImage implements cri.Images.
func (r *Runtime) RemoveImage(_ context.Context, id string) error {
	if err := r.begin("RemoveImage"); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, i := range r.images {
		if i.Id == id || name == id {
			delete(r.images, name)
		}
	}
	return nil
}

// ImageFsInfo implements cri.Images.
func (r *Runtime) ImageFsInfo(context.Context) ([]*runtime.FilesystemUsage, error) { return nil, nil }

// Cgroups are control groups that are only named.
type Cgroups struct{}

// Setup does nothing.
func (Cgroups) Setup(cgroup.Limits) error { return nil }

// Burstable does nothing.
func (Cgroups) Burstable(int64) error { return nil }

// Parent names a pod's group.
func (Cgroups) Parent(p *corev1.Pod) string { return (&cgroup.Manager{}).Parent(p) }

// Make does nothing.
func (Cgroups) Make(string, cgroup.Limits) error { return nil }

// Remove does nothing.
func (Cgroups) Remove(string) error { return nil }

// Pods returns none.
func (Cgroups) Pods() (map[string]string, error) { return nil, nil }

// Machine is a machine of a given size that is never short of anything.
type Machine struct {
	Name   string
	Cores  int
	Bytes  int64 // of memory
	Kernel string
}

// Info returns what a real machine would say of itself.
func (m Machine) Info() corev1.NodeSystemInfo {
	id := fmt.Sprintf("%x", sha256.Sum256([]byte(m.Name)))[:32]
	return corev1.NodeSystemInfo{
		MachineID: id, SystemUUID: id, BootID: id, KernelVersion: m.Kernel, OSImage: "hollow", OperatingSystem: "linux", Architecture: "amd64",
	}
}

// CPUs returns the number of cores.
func (m Machine) CPUs() int { return m.Cores }

// Memory returns that all of it is available.
func (m Machine) Memory() (available, capacity int64, err error) { return m.Bytes, m.Bytes, nil }

// Processes returns that there is one.
func (m Machine) Processes() (used, capacity int64, err error) { return 1, 1 << 22, nil }
