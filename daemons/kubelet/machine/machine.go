// Package machine measures the machine that hosts the node.
package machine

import (
	"bufio"
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kubelet/cgroup"
)

// Machine measures the machine that hosts the node.
type Machine interface {
	Info() corev1.NodeSystemInfo
	CPUs() int
	// CPU returns the CPU time used since the machine booted, in nanoseconds summed over all cores.
	CPU() (uint64, error)
	Memory() (available, capacity int64, err error)
	// Disk returns the state of the file system that holds pods' volumes and logs.
	Disk() (Disk, error)
	Processes() (used, capacity int64, err error)
}

// Disk is the state of a file system: available space in bytes and in inodes.
type Disk struct {
	Available, Capacity    int64
	InodesFree, InodeCount int64
}

// Local is the machine that the kubelet runs on.
type Local struct {
	Root    string
	Cgroups *cgroup.Manager // cgroups of the pods
	procfs  string          // default /proc
}

// Info implements Machine.
func (Local) Info() corev1.NodeSystemInfo {
	info := corev1.NodeSystemInfo{OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH}
	info.MachineID = firstLine("/etc/machine-id", "/var/lib/dbus/machine-id")
	info.SystemUUID = firstLine("/sys/class/dmi/id/product_uuid")
	if info.SystemUUID == "" {
		info.SystemUUID = info.MachineID
	}
	info.BootID = firstLine("/proc/sys/kernel/random/boot_id")
	info.KernelVersion = firstLine("/proc/sys/kernel/osrelease")
	info.OSImage = "Linux"
	if f, err := os.Open("/etc/os-release"); err == nil {
		defer f.Close()
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "PRETTY_NAME="); ok {
				info.OSImage = strings.Trim(name, `"'`)
			}
		}
	}
	return info
}

func firstLine(paths ...string) string {
	for _, path := range paths {
		if data, err := os.ReadFile(path); err == nil {
			if line, _, _ := strings.Cut(strings.TrimSpace(string(data)), "\n"); line != "" {
				return line
			}
		}
	}
	return ""
}

// CPUs implements Machine.
func (Local) CPUs() int { return runtime.NumCPU() }

// Memory implements Machine.
func (Local) Memory() (available, capacity int64, err error) {
	used, total, err := cgroup.MemoryInUse()
	return total - used, total, err
}

// Disk implements Machine.
func (l Local) Disk() (Disk, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(l.Root, &s); err != nil {
		return Disk{}, fmt.Errorf("read the file system of %s: %w", l.Root, err)
	}
	return Disk{
		Available: int64(s.Bavail) * s.Bsize, Capacity: int64(s.Blocks) * s.Bsize,
		InodesFree: int64(s.Ffree), InodeCount: int64(s.Files),
	}, nil
}

// Processes implements Machine. It returns the usage and the capacity of the scarcest resource: process IDs, kernel
// tasks, or the pids limits of the cgroups that contain pods.
func (l Local) Processes() (used, capacity int64, err error) {
	for _, limit := range []string{"pid_max", "threads-max"} {
		maximum, err := strconv.ParseInt(firstLine(filepath.Join(l.procRoot(), "sys/kernel", limit)), 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read the kernel's %s: %w", limit, err)
		}
		if capacity == 0 || maximum < capacity {
			capacity = maximum
		}
	}
	// The fourth field of loadavg is running/total tasks.
	fields := strings.Fields(firstLine(filepath.Join(l.procRoot(), "loadavg")))
	if len(fields) < 4 {
		return 0, capacity, fmt.Errorf("read the number of processes: /proc/loadavg has %d fields", len(fields))
	}
	_, all, _ := strings.Cut(fields[3], "/")
	if used, err = strconv.ParseInt(all, 10, 64); err != nil {
		return 0, capacity, fmt.Errorf("read the number of processes: %w", err)
	}
	if inside, maximum, ok := l.Cgroups.Tasks(); ok && maximum-inside < capacity-used {
		return inside, maximum, nil
	}
	return used, capacity, nil
}

func (l Local) procRoot() string { return cmp.Or(l.procfs, "/proc") }

// CPU implements Machine.
func (Local) CPU() (uint64, error) {
	fields := strings.Fields(firstLine("/proc/stat"))
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("read the machine's CPU time: /proc/stat has no cpu line")
	}
	var ticks uint64
	for i, f := range fields[1:9] {
		if i == 3 || i == 4 {
			continue // idle and iowait
		}
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	const perTick = 10_000_000 // nanoseconds; USER_HZ is 100 on all supported Linux machines
	return ticks * perTick, nil
}

// NodeName returns the name of the node: override, or the machine's host name.
func NodeName(override string) (string, error) {
	name := override
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("find the node's name: %w", err)
		}
		name = host
	}
	return strings.ToLower(strings.TrimSpace(name)), nil
}

// NodeIPs returns the given addresses. Without any, it returns the address from which packets leave to the outside.
// Without a route to the outside, it returns the first global unicast address of an interface. name is only for errors.
func NodeIPs(given []string, name string) ([]string, error) {
	if len(given) > 0 {
		for _, ip := range given {
			if net.ParseIP(ip) == nil {
				return nil, fmt.Errorf("node address %q is not an IP address", ip)
			}
		}
		return given, nil
	}
	if conn, err := net.Dial("udp4", "192.0.2.1:9"); err == nil {
		defer conn.Close()
		return []string{conn.LocalAddr().(*net.UDPAddr).IP.String()}, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("find the node's address: %w", err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return []string{n.IP.String()}, nil
		}
	}
	return nil, fmt.Errorf("node %s has no address: set --node-ip", name)
}
