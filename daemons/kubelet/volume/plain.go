package volume

import "os"

// Plain is a Mounter that mounts nothing: directories stand in for what would be
// mounted. For nodes that only pretend, and for tests without root.
type Plain struct{}

var _ Mounter = Plain{}

// Tmpfs implements Mounter.
func (Plain) Tmpfs(path, _ string) error { return os.MkdirAll(path, 0o755) }

// Bind implements Mounter.
func (Plain) Bind(_, to string, _ bool) error { return os.MkdirAll(to, 0o755) }

// UnmountAll implements Mounter.
func (Plain) UnmountAll(string) error { return nil }

// Mounted implements Mounter.
func (Plain) Mounted(string) (bool, error) { return false, nil }
