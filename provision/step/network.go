package step

import (
	"context"
	"strings"

	"clusterctl/provision/host"
)

// ClearNetwork removes the pod network and services from the kernel.
type ClearNetwork struct {
	host.Network
}

// Label returns a fixed text.
func (s *ClearNetwork) Label() string { return "no pod network" }

// Check looks for parts that exist.
func (s *ClearNetwork) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	found, err := h.Network(ctx, s.Network)
	if err != nil || len(found) == 0 {
		return Change{}, err
	}
	return Change{Action: Delete, Kind: "network", Name: strings.Join(found, ", ")}, nil
}

// Apply removes the parts.
func (s *ClearNetwork) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	return h.ClearNetwork(ctx, s.Network)
}
