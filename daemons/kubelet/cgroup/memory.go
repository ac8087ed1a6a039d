package cgroup

import (
	"errors"
	"path/filepath"
	"strconv"
)

// IsUnified reports whether the machine uses only cgroup version 2, and thus has its features.
func (m *Manager) IsUnified() bool {
	_, unified, err := m.trees()
	return err == nil && unified
}

// Protect sets the memory protection of all pods, in bytes: the requests of guaranteed pods are never reclaimed, and
// those of burstable pods are reclaimed last. A group cannot be protected more than its parents. Zero removes the
// protection. Control groups version 1 has no such protection.
func (m *Manager) Protect(guaranteed, burstable int64) error {
	if !m.IsUnified() {
		return nil
	}
	pods := filepath.Join(m.mountPoint(), m.Root, PodsName)
	return errors.Join(setProtection(pods, guaranteed, burstable),
		setProtection(filepath.Join(pods, "burstable"), 0, burstable))
}

// setProtection writes the protected memory of a version 2 cgroup, in bytes.
func setProtection(dir string, minimum, low int64) error {
	return errors.Join(writeFile(filepath.Join(dir, "memory.min"), strconv.FormatInt(minimum, 10)),
		writeFile(filepath.Join(dir, "memory.low"), strconv.FormatInt(low, 10)))
}
