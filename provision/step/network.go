package step

import (
	"context"
	"strings"

	"clusterctl/provision/host"
)

// NoNetwork is that nothing of the pod network and of services is left in the kernel.
type NoNetwork struct {
	host.Network
}

// Label says so.
func (s *NoNetwork) Label() string { return "no pod network" }

// Check looks for them.
func (s *NoNetwork) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	found, err := h.Network(ctx, s.Network)
	if err != nil || len(found) == 0 {
		return Change{}, err
	}
	return Change{Action: Delete, Kind: "network", Name: strings.Join(found, ", ")}, nil
}

// Apply removes them.
func (s *NoNetwork) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	return h.ClearNetwork(ctx, s.Network)
}
