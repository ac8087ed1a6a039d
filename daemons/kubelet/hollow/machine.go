package hollow

import (
	"crypto/sha256"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kubelet/cgroup"
)

// Cgroups implements the kubelet's Cgroups without creating any.
type Cgroups struct{}

// Setup does nothing.
func (Cgroups) Setup(cgroup.Limits) error { return nil }

// SetBurstableShares does nothing.
func (Cgroups) SetBurstableShares(int64) error { return nil }

// Parent returns the name of a pod's cgroup.
func (Cgroups) Parent(p *corev1.Pod) string { return (&cgroup.Manager{}).Parent(p) }

// Make does nothing.
func (Cgroups) Make(string, cgroup.Limits) error { return nil }

// Protect does nothing.
func (Cgroups) Protect(int64, int64) error { return nil }

// IsUnified reports that cgroup version 2 is not available.
func (Cgroups) IsUnified() bool { return false }

// Remove does nothing.
func (Cgroups) Remove(string) error { return nil }

// Pods returns none.
func (Cgroups) Pods() (map[string]string, error) { return nil, nil }

// Machine is a simulated machine of a given size. The Runtime reports how much of it is used.
type Machine struct {
	Name   string
	Cores  int
	Bytes  int64 // memory in bytes
	Kernel string
}

// Info returns the system information of the simulated machine.
func (m Machine) Info() corev1.NodeSystemInfo {
	id := fmt.Sprintf("%x", sha256.Sum256([]byte(m.Name)))[:32]
	return corev1.NodeSystemInfo{
		MachineID: id, SystemUUID: id, BootID: id, KernelVersion: m.Kernel, OSImage: "hollow", OperatingSystem: "linux",
		Architecture: "amd64",
	}
}

// CPUs returns the number of cores.
func (m Machine) CPUs() int { return m.Cores }

// Processes reports one process.
func (m Machine) Processes() (used, capacity int64, err error) { return 1, 1 << 22, nil }
