package kubelet

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/kubelet/hollow"
	"clusterctl/daemons/kubelet/machine"
	"clusterctl/daemons/kubelet/pod"
	"clusterctl/daemons/kubelet/volume"
)

// hollowMachine extends hollow.Machine with the resource usage of its containers. It also implements Disk, whose result
// type belongs to this package.
type hollowMachine struct {
	hollow.Machine
	runtime *hollow.Runtime
}

// CPU implements Machine.
func (m hollowMachine) CPU() (uint64, error) {
	cpu, _ := m.runtime.Usage()
	return cpu, nil
}

// Memory implements Machine.
func (m hollowMachine) Memory() (available, capacity int64, err error) {
	_, used := m.runtime.Usage()
	return max(0, m.Bytes-int64(used)), m.Bytes, nil
}

// Disk implements Machine.
func (hollowMachine) Disk() (machine.Disk, error) {
	return machine.Disk{Available: 100 << 30, Capacity: 100 << 30, InodesFree: 1 << 22, InodeCount: 1 << 22}, nil
}

// Hollow returns the options of a simulated node: no containers run, nothing is mounted, and no root privileges are
// needed. The addresses of its pods come from the network pods. It writes files below cfg.RootDir and logRoot.
func Hollow(name string, cores int, memory int64, pods netip.Prefix, logRoot string) Options {
	runtime := &hollow.Runtime{Pods: pods}
	return Options{
		Runtime: runtime, Mounter: volume.Plain{}, Cgroups: hollow.Cgroups{},
		Machine: hollowMachine{
			hollow.Machine{Name: name, Cores: cores, Bytes: memory, Kernel: "0.0.0-hollow"},
			runtime,
		},
		LogRoot: logRoot, NoServer: true, Simulated: true,
	}
}

// isFinite reports whether a container of a simulated pod should exit by itself. Init containers and the containers of
// pods that are not restarted do, because others wait for their exit. Sidecars and ephemeral containers run until they
// are stopped.
func (s *podWorkers) isFinite(uid, name string) bool {
	s.mu.Lock()
	w := s.workers[types.UID(uid)]
	s.mu.Unlock()
	if w == nil {
		return false
	}
	w.inbox.mu.Lock()
	p := w.inbox.pod
	w.inbox.mu.Unlock()
	return isFiniteContainer(p, name)
}

func isFiniteContainer(p *corev1.Pod, name string) bool {
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.Name == name {
			return !pod.IsSidecar(c)
		}
	}
	for i := range p.Spec.Containers {
		if c := &p.Spec.Containers[i]; c.Name == name {
			return p.Spec.RestartPolicy != corev1.RestartPolicyAlways && !pod.IsSidecar(c)
		}
	}
	return false
}
