package step

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"clusterctl/provision/host"
)

// Membership compares etcd's own list of members with the machines that should have one. It is only checked.
type Membership struct {
	Store Store `json:"store"`
	// Allowed are the machines that may have a member. Required are those that must have one.
	Allowed  []string `json:"known"`
	Required []string `json:"wanted"`
}

func (*Membership) checksRemotely() {}

// Label returns a fixed text, because a run has one such step.
func (s *Membership) Label() string { return "members of etcd" }

// Check reports members without a machine and machines without a member. It reports nothing when etcd does not answer:
// the health of the members reports that.
func (s *Membership) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	members, err := s.Store.Members(ctx, h, healthTimeout)
	if err != nil {
		return Change{}, nil
	}
	var found []string
	for _, m := range members {
		switch {
		case m.Name == "" && !m.Learner:
			found = append(found, fmt.Sprintf("etcd counts the member %x at %s, which has never started", m.ID,
				m.PeerURL))
		case m.Name != "" && !slices.Contains(s.Allowed, m.Name):
			found = append(found, fmt.Sprintf(
				"etcd has the member %s (%x) at %s, and no machine of the control plane has that name", m.Name, m.ID,
				m.PeerURL))
		}
	}
	for _, name := range s.Required {
		if !slices.ContainsFunc(members, func(m host.Member) bool { return m.Name == name }) {
			found = append(found, "etcd has no member "+name+", and that machine should have one")
		}
	}
	if len(found) == 0 {
		return Change{}, nil
	}
	return Change{Action: Update, Kind: "etcd", Name: "members", Note: strings.Join(found, "; ")}, nil
}

// Apply changes nothing, because the list does not tell which member to add or remove.
func (s *Membership) Apply(context.Context, host.Host, *Walk) error { return nil }
