// Package cgroup creates the cgroups of pods and returns their names. It supports cgroup version 1, which has one tree
// per controller, and version 2, which has a single tree. The runtime creates the containers' own cgroups.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"clusterctl/daemons/kubelet/pod"
)

// Manager creates and removes the cgroups of pods.
type Manager struct {
	Mount string // default /sys/fs/cgroup
	Root  string // parent of the kubepods cgroup; default /
}

// PodsName is the name of the cgroup of all pods, below Root.
const PodsName = "kubepods"

// Parent returns the cgroup of a pod in the notation of CRI's cgroup_parent.
func (m *Manager) Parent(p *corev1.Pod) string {
	class := strings.ToLower(string(pod.QOS(p)))
	if class == "guaranteed" {
		class = ""
	}
	return filepath.Join("/", m.Root, PodsName, class, "pod"+string(p.UID))
}

// Setup creates the cgroup of all pods and the cgroup of the BestEffort class.
func (m *Manager) Setup(all Limits) error {
	base := filepath.Join("/", m.Root, PodsName)
	if err := m.Make(base, all); err != nil {
		return err
	}
	return m.Make(filepath.Join(base, "besteffort"), Limits{CPUShares: pod.MinShares})
}

// SetBurstableShares sets the CPU shares of the Burstable class to the sum of its pods' requests, so that they get
// their share besides guaranteed pods.
func (m *Manager) SetBurstableShares(shares int64) error {
	return m.Make(filepath.Join("/", m.Root, PodsName, "burstable"), Limits{CPUShares: shares})
}

// Make creates a cgroup with its limits. path is relative to the root of the tree.
func (m *Manager) Make(path string, l Limits) error {
	trees, unified, err := m.trees()
	if err != nil {
		return err
	}
	if unified {
		return m.makeUnified(path, l)
	}
	for _, tree := range trees {
		if err := makeGroup(tree, path); err != nil {
			return fmt.Errorf("make cgroup %s in %s: %w", path, tree, err)
		}
	}
	var set []error
	put := func(controller, file string, value int64) {
		if value > 0 {
			set = append(set, writeFile(filepath.Join(m.mountPoint(), controller, path, file),
				strconv.FormatInt(value, 10)))
		}
	}
	put("cpu", "cpu.shares", l.CPUShares)
	if l.CPUQuota > 0 {
		put("cpu", "cpu.cfs_period_us", pod.CPUPeriod)
	}
	put("cpu", "cpu.cfs_quota_us", l.CPUQuota)
	put("memory", "memory.limit_in_bytes", l.MemoryLimit)
	put("pids", "pids.max", l.Pids)
	return errors.Join(set...)
}

func (m *Manager) mountPoint() string {
	if m.Mount == "" {
		return "/sys/fs/cgroup"
	}
	return m.Mount
}

// trees returns the controller trees of version 1, or reports that the machine uses the unified tree of version 2.
func (m *Manager) trees() (trees []string, unified bool, err error) {
	if _, err := os.Stat(filepath.Join(m.mountPoint(), "cgroup.controllers")); err == nil {
		return nil, true, nil
	}
	entries, err := os.ReadDir(m.mountPoint())
	if err != nil {
		return nil, false, fmt.Errorf("find cgroup controllers: %w", err)
	}
	for _, e := range entries {
		dir := filepath.Join(m.mountPoint(), e.Name())
		// Symbolic links are aliases of other trees. The unified tree of a hybrid machine has no usable controllers.
		if !e.IsDir() || e.Name() == "unified" {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
			trees = append(trees, dir)
		}
	}
	if len(trees) == 0 {
		return nil, false, fmt.Errorf("no cgroup controllers are mounted at %s", m.mountPoint())
	}
	return trees, false, nil
}

// allTrees returns every tree in which a pod can have a cgroup. On a hybrid machine, the runtime also creates one in
// the unified tree.
func (m *Manager) allTrees() ([]string, error) {
	trees, unified, err := m.trees()
	if err != nil {
		return nil, err
	}
	if unified {
		return []string{m.mountPoint()}, nil
	}
	if mixed := filepath.Join(m.mountPoint(), "unified"); exists(mixed) {
		trees = append(trees, mixed)
	}
	return trees, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// makeGroup creates a path in a tree of version 1. A cpuset cgroup is unusable until it has CPUs and memory nodes, so
// makeGroup copies those of the parent.
func makeGroup(tree, path string) error {
	at := tree
	for _, part := range strings.Split(strings.Trim(path, "/"), "/") {
		parent := at
		at = filepath.Join(at, part)
		if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			existing, err := os.ReadFile(filepath.Join(at, file))
			if err != nil || strings.TrimSpace(string(existing)) != "" {
				continue
			}
			value, err := os.ReadFile(filepath.Join(parent, file))
			if err != nil {
				return err
			}
			if err := writeFile(filepath.Join(at, file), strings.TrimSpace(string(value))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *Manager) makeUnified(path string, l Limits) error {
	at := m.mountPoint()
	for _, part := range strings.Split(strings.Trim(path, "/"), "/") {
		available, err := os.ReadFile(filepath.Join(at, "cgroup.controllers"))
		if err != nil {
			return err
		}
		for _, c := range strings.Fields(string(available)) {
			if err := writeFile(filepath.Join(at, "cgroup.subtree_control"), "+"+c); err != nil &&
				(c == "cpu" || c == "memory" || c == "pids") {
				return fmt.Errorf("enable the %s controller in %s: %w", c, at, err)
			}
		}
		at = filepath.Join(at, part)
		if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	var set []error
	if l.CPUShares > 0 {
		set = append(set, writeFile(filepath.Join(at, "cpu.weight"), strconv.FormatInt(Weight(l.CPUShares), 10)))
	}
	if l.CPUQuota > 0 {
		set = append(set, writeFile(filepath.Join(at, "cpu.max"), fmt.Sprintf("%d %d", l.CPUQuota, pod.CPUPeriod)))
	}
	if l.MemoryLimit > 0 {
		set = append(set, writeFile(filepath.Join(at, "memory.max"), strconv.FormatInt(l.MemoryLimit, 10)))
	}
	if l.Pids > 0 {
		set = append(set, writeFile(filepath.Join(at, "pids.max"), strconv.FormatInt(l.Pids, 10)))
	}
	return errors.Join(append(set, setProtection(at, l.MemoryMin, l.MemoryLow))...)
}

// Weight converts cgroup v1 shares to a cgroup v2 weight: 2 to 1, 1024 to 100 and 262144 to 10000, on a curve through
// these points. Container runtimes use the same curve (https://github.com/kubernetes/kubernetes/issues/131216).
func Weight(shares int64) int64 {
	switch {
	case shares <= 2:
		return 1
	case shares >= 262144:
		return 10000
	}
	l := math.Log2(float64(shares))
	return int64(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
}

func writeFile(path, value string) error { return os.WriteFile(path, []byte(value), 0o644) }

// Remove removes a pod's cgroup and all cgroups below it. It kills the processes that are still in them. An interrupted
// runtime can leave such processes behind, which belong to no container that it knows.
func (m *Manager) Remove(path string) error {
	trees, err := m.allTrees()
	if err != nil {
		return err
	}
	var failures []error
	for _, tree := range trees {
		failures = append(failures, removeTree(filepath.Join(tree, path)))
	}
	return errors.Join(failures...)
}

func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	// The kernel releases a cgroup shortly after its last process has ended.
	for wait := time.Millisecond; ; wait *= 2 {
		err = os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if wait > 100*time.Millisecond {
			return fmt.Errorf("remove cgroup: %w", err)
		}
		if err := killAll(dir); err != nil {
			return err
		}
		time.Sleep(wait)
	}
}

// killAll kills the processes in a cgroup.
func killAll(dir string) error {
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for processes in a cgroup: %w", err)
	}
	var failures []error
	for _, word := range strings.Fields(string(procs)) {
		// A process in another PID namespace is shown as 0, which kill would treat as its own process group.
		if id, err := strconv.Atoi(word); err == nil && id > 1 {
			if err := syscall.Kill(id, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				failures = append(failures, fmt.Errorf("kill process %d in %s: %w", id, dir, err))
			}
		}
	}
	return errors.Join(failures...)
}

// Pods returns the path of each pod's cgroup by pod UID.
func (m *Manager) Pods() (map[string]string, error) {
	trees, err := m.allTrees()
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, tree := range trees {
		for _, class := range []string{"", "burstable", "besteffort"} {
			path := filepath.Join("/", m.Root, PodsName, class)
			entries, _ := os.ReadDir(filepath.Join(tree, path))
			for _, e := range entries {
				if uid, ok := strings.CutPrefix(e.Name(), "pod"); ok && e.IsDir() {
					found[uid] = filepath.Join(path, e.Name())
				}
			}
		}
	}
	return found, nil
}

// MemoryInUse returns the machine's memory that is in use and not immediately reclaimable, and the total, in bytes.
func MemoryInUse() (used, total int64, err error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	var available int64
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "MemTotal:":
			total = kib << 10
		case "MemAvailable:":
			available = kib << 10
		}
	}
	return total - available, total, lines.Err()
}
