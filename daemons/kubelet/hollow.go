package kubelet

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"clusterctl/daemons/kubelet/hollow"
	"clusterctl/daemons/kubelet/pod"
	"clusterctl/daemons/kubelet/volume"
)

// hollowMachine adds what the containers on it use, and a disk, whose type is this package's.
type hollowMachine struct {
	hollow.Machine
	runtime *hollow.Runtime
}

// CPU implements Machine.
func (m hollowMachine) CPU() (uint64, error) {
	cpu, _ := m.runtime.Used()
	return cpu, nil
}

// Memory implements Machine.
func (m hollowMachine) Memory() (available, capacity int64, err error) {
	_, used := m.runtime.Used()
	return max(0, m.Bytes-int64(used)), m.Bytes, nil
}

// Disk implements Machine.
func (hollowMachine) Disk() (Disk, error) {
	return Disk{Available: 100 << 30, Capacity: 100 << 30, InodesFree: 1 << 22, InodeCount: 1 << 22}, nil
}

// Hollow returns the options of a node that only pretends: nothing runs, nothing
// is mounted, no root is needed. pods is the network that its pods' addresses are from.
// The directories of cfg.RootDir and logRoot are used for files.
func Hollow(name string, cores int, memory int64, pods netip.Prefix, logRoot string) Options {
	runtime := &hollow.Runtime{Pods: pods}
	return Options{
		Runtime: runtime, Mounter: volume.Plain{}, Cgroups: hollow.Cgroups{},
		Machine: hollowMachine{
			hollow.Machine{Name: name, Cores: cores, Bytes: memory, Kernel: "0.0.0-hollow"},
			runtime,
		},
		LogRoot: logRoot, NoServer: true, Pretended: true,
	}
}

// finite says whether a container of a pod of this node is to come to its end by itself: what others wait for, as an
// init container or all of a pod that is not started again. A sidecar or an ephemeral container runs until it is
// stopped.
func (k *Kubelet) finite(uid, name string) bool {
	k.mu.Lock()
	w := k.workers[types.UID(uid)]
	k.mu.Unlock()
	if w == nil {
		return false
	}
	w.mu.Lock()
	p := w.pod
	w.mu.Unlock()
	return finite(p, name)
}

func finite(p *corev1.Pod, name string) bool {
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.Name == name {
			return !pod.Sidecar(c)
		}
	}
	for i := range p.Spec.Containers {
		if c := &p.Spec.Containers[i]; c.Name == name {
			return p.Spec.RestartPolicy != corev1.RestartPolicyAlways && !pod.Sidecar(c)
		}
	}
	return false
}
