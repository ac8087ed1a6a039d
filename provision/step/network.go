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

// Sweep removes the files of former releases from the library, whenever a new one comes.
type Sweep struct {
	Keep []string `json:"keep"` // digests
	Link string   `json:"link"` // whose change means a new release
}

// Label says so.
func (s *Sweep) Label() string { return "no former releases" }

// Check finds something only in a walk that changes the link, so that two people
// with different releases do not undo each other's plans.
func (s *Sweep) Check(_ context.Context, h host.Host, w *Walk) (Change, error) {
	if len(w.Touched([]string{s.Link})) == 0 {
		return Change{}, nil
	}
	old, err := s.old(h)
	if err != nil || len(old) == 0 {
		return Change{}, err
	}
	return Change{Action: Delete, Kind: "binary", Name: "of former releases"}, nil
}

func (s *Sweep) old(h host.Host) (list []string, err error) {
	names, err := h.List(host.Library)
	if err != nil {
		return nil, nil // there is no library yet
	}
	for _, n := range names {
		kept := false
		for _, k := range s.Keep {
			kept = kept || k == n
		}
		if !kept {
			list = append(list, n)
		}
	}
	return list, nil
}

// Apply removes them. A running program's file stays until it ends.
func (s *Sweep) Apply(_ context.Context, h host.Host, _ *Walk) error {
	old, err := s.old(h)
	if err != nil {
		return err
	}
	for _, n := range old {
		if err := h.RemoveAll(host.Library + "/" + n); err != nil {
			return err
		}
	}
	return nil
}
