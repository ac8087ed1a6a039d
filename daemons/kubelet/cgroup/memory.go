package cgroup

import (
	"errors"
	"path/filepath"
	"strconv"
)

// Unified reports whether the machine uses only cgroup version 2, and thus has its features.
func (m *Manager) Unified() bool {
	_, unified, err := m.trees()
	return err == nil && unified
}

// Protect sets the memory protection of all pods, in bytes: the requests of guaranteed pods are never reclaimed, and
// those of burstable pods are reclaimed last. A group cannot be protected more than its parents. Zero removes the
// protection. Control groups version 1 has no such protection.
func (m *Manager) Protect(guaranteed, burstable int64) error {
	if !m.Unified() {
		return nil
	}
	pods := filepath.Join(m.mount(), m.Root, PodsName)
	return errors.Join(protect(pods, guaranteed, burstable), protect(filepath.Join(pods, "burstable"), 0, burstable))
}

// protect writes the protected memory of a version 2 cgroup, in bytes.
func protect(dir string, least, low int64) error {
	return errors.Join(put(filepath.Join(dir, "memory.min"), strconv.FormatInt(least, 10)),
		put(filepath.Join(dir, "memory.low"), strconv.FormatInt(low, 10)))
}
