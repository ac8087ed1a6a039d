package step

import (
	"context"
	"fmt"

	"clusterctl/provision/host"
)

// Unmount unmounts everything at paths that start with one of Prefixes. It does not depend on containers: a kubelet
// that was stopped leaves mounts of pods that have no containers any more, and files below mounts cannot be removed.
type Unmount struct {
	Prefixes []string `json:"prefixes"`
}

// Label returns a fixed text.
func (s *Unmount) Label() string { return "no mounts" }

// Check looks for mounts.
func (s *Unmount) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	paths, err := h.Mounts(s.Prefixes...)
	if err != nil || len(paths) == 0 {
		return Change{}, err
	}
	return Change{
		Action: Delete,
		Kind:   "mounts",
		Name:   "of pods",
		Note:   fmt.Sprintf("unmount the %d that are left", len(paths)),
	}, nil
}

// Apply unmounts the mounts.
func (s *Unmount) Apply(_ context.Context, h host.Host, _ *Walk) error {
	return h.Unmount(s.Prefixes...)
}
