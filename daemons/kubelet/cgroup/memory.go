package cgroup

import (
	"errors"
	"path/filepath"
	"strconv"
)

// Unified reports whether the machine has version 2 of control groups alone, and so what only that has.
func (m *Manager) Unified() bool {
	_, unified, err := m.trees()
	return err == nil && unified
}

// Protect protects the memory of pods as a whole: what guaranteed pods request together, which is never reclaimed, and
// what burstable ones do, which is reclaimed last. A group is protected no further than those that it is in. Zeros take
// protection back. Version 1 of control groups has none.
func (m *Manager) Protect(guaranteed, burstable int64) error {
	if !m.Unified() {
		return nil
	}
	pods := filepath.Join(m.mount(), m.Root, PodsName)
	return errors.Join(protect(pods, guaranteed, burstable), protect(filepath.Join(pods, "burstable"), 0, burstable))
}

// protect writes how much memory of a group of version 2 is protected.
func protect(dir string, least, low int64) error {
	return errors.Join(put(filepath.Join(dir, "memory.min"), strconv.FormatInt(least, 10)), put(filepath.Join(dir, "memory.low"), strconv.FormatInt(low, 10)))
}
