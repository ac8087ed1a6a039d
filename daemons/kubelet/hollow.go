package kubelet

import (
	"net/netip"

	"clusterctl/daemons/kubelet/hollow"
	"clusterctl/daemons/kubelet/volume"
)

// hollowMachine adds a disk, whose type is this package's.
type hollowMachine struct{ hollow.Machine }

// Disk implements Machine.
func (hollowMachine) Disk() (Disk, error) {
	return Disk{Available: 100 << 30, Capacity: 100 << 30, InodesFree: 1 << 22, InodeCount: 1 << 22}, nil
}

// Hollow returns the options of a node that only pretends: nothing runs, nothing
// is mounted, no root is needed. pods is the network that its pods' addresses are from.
// The directories of cfg.RootDir and logRoot are used for files.
func Hollow(name string, cores int, memory int64, pods netip.Prefix, logRoot string) Options {
	return Options{
		Runtime: &hollow.Runtime{Pods: pods}, Mounter: volume.Plain{}, Cgroups: hollow.Cgroups{},
		Machine: hollowMachine{hollow.Machine{Name: name, Cores: cores, Bytes: memory, Kernel: "0.0.0-hollow"}},
		LogRoot: logRoot, NoServer: true,
	}
}
