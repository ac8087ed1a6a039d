package step

import (
	"context"
	"strings"

	"clusterctl/provision/host"
)

// NoNetwork removes the pod network and services from the kernel.
type NoNetwork struct {
	host.Network
}

// Label returns a fixed text.
func (s *NoNetwork) Label() string { return "no pod network" }

// Check looks for parts that exist.
func (s *NoNetwork) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	found, err := h.Network(ctx, s.Network)
	if err != nil || len(found) == 0 {
		return Change{}, err
	}
	return Change{Action: Delete, Kind: "network", Name: strings.Join(found, ", ")}, nil
}

// Apply removes the parts.
func (s *NoNetwork) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	return h.ClearNetwork(ctx, s.Network)
}
