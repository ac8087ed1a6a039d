package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Tasks returns the number of processes and threads in a cgroup, and the limit of that cgroup. It selects the cgroup
// with the fewest tasks left, among the group of all pods and its parents. ok is false if none of them has a limit.
func (m *Manager) Tasks() (current, limit int64, ok bool) {
	_, unified, err := m.trees()
	if err != nil {
		return 0, 0, false
	}
	tree := m.mountPoint()
	if !unified {
		tree = filepath.Join(tree, "pids")
	}
	number := func(path string) (int64, bool) {
		data, err := os.ReadFile(path)
		if err != nil {
			return 0, false
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64) // "max" is no limit
		return n, err == nil
	}
	for path := filepath.Join("/", m.Root, PodsName); ; path = filepath.Dir(path) {
		actual, counts := number(filepath.Join(tree, path, "pids.current"))
		maximum, limits := number(filepath.Join(tree, path, "pids.max"))
		if counts && limits && (!ok || maximum-actual < limit-current) {
			current, limit, ok = actual, maximum, true
		}
		if path == "/" {
			return current, limit, ok
		}
	}
}
