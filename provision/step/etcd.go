package step

import (
	"context"
	"fmt"
	"time"

	"clusterctl/provision/host"
)

// Store says how the store is reached from a control-plane machine.
type Store struct {
	Endpoints []string `json:"endpoints"`
	CA        string   `json:"ca"` // paths on the machine
	Cert      string   `json:"cert"`
	Key       string   `json:"key"`
}

func (s Store) with(ctx context.Context, h host.Host, f func(context.Context, host.Etcd, []host.Member) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	etcd, err := h.Etcd(ctx, s.Endpoints, s.CA, s.Cert, s.Key)
	if err != nil {
		return err
	}
	defer func() { _ = etcd.Close() }()
	members, err := etcd.Members(ctx)
	if err != nil {
		return err
	}
	return f(ctx, etcd, members)
}

// EtcdJoin adds this machine to the store as a learner, before its member first starts.
type EtcdJoin struct {
	Store   Store  `json:"store"`
	Name    string `json:"name"`
	PeerURL string `json:"peerURL"`
	DataDir string `json:"dataDir"`
}

// Label names the member.
func (s *EtcdJoin) Label() string { return "etcd member " + s.Name }

// Check looks whether the member has ever run here.
func (s *EtcdJoin) Check(_ context.Context, h host.Host, _ *Walk) (Change, error) {
	if names, err := h.List(s.DataDir); err == nil && len(names) > 0 {
		return Change{}, nil
	}
	return Change{Action: Create, Kind: "etcd", Name: s.Name, Note: "join as learner"}, nil
}

// Apply adds the learner unless it is there.
func (s *EtcdJoin) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	return s.Store.with(ctx, h, func(ctx context.Context, etcd host.Etcd, members []host.Member) error {
		for _, m := range members {
			if m.PeerURL == s.PeerURL && m.Name == "" {
				return nil // added by a run that was cut off
			}
			if m.PeerURL == s.PeerURL || m.Name == s.Name {
				// A member that lost its disk cannot come back as itself.
				if err := etcd.Remove(ctx, m.ID); err != nil {
					return fmt.Errorf("remove the former member %s: %w", s.Name, err)
				}
			}
		}
		if err := etcd.AddLearner(ctx, s.PeerURL); err != nil {
			return fmt.Errorf("add %s to etcd: %w", s.Name, err)
		}
		return nil
	})
}

// EtcdVote makes a learner that has caught up a voting member.
type EtcdVote struct {
	Store Store  `json:"store"`
	Name  string `json:"name"`
}

// Label names the member.
func (s *EtcdVote) Label() string { return "etcd vote of " + s.Name }

// Check asks the store; one that does not answer has no learner to promote.
func (s *EtcdVote) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	var c Change
	err := s.Store.with(ctx, h, func(_ context.Context, _ host.Etcd, members []host.Member) error {
		for _, m := range members {
			if m.Name == s.Name && !m.Learner {
				return nil
			}
		}
		c = Change{Action: Update, Kind: "etcd", Name: s.Name, Note: "give it a vote"}
		return nil
	})
	if err != nil {
		return Change{Action: Update, Kind: "etcd", Name: s.Name, Note: "give it a vote"}, nil
	}
	return c, nil
}

// Apply promotes the member as soon as the leader finds that it has caught up.
func (s *EtcdVote) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	return s.Store.with(ctx, h, func(ctx context.Context, etcd host.Etcd, members []host.Member) error {
		for _, m := range members {
			if m.Name != s.Name || !m.Learner {
				continue
			}
			tick := time.NewTicker(200 * time.Millisecond)
			defer tick.Stop()
			for {
				err := etcd.Promote(ctx, m.ID)
				if err == nil {
					return nil
				}
				select {
				case <-tick.C:
				case <-ctx.Done():
					return fmt.Errorf("promote %s: %w", s.Name, err)
				}
			}
		}
		return nil
	})
}

// EtcdLeave removes another machine's member. It is refused when the rest would not be a majority.
type EtcdLeave struct {
	Store Store  `json:"store"`
	Name  string `json:"name"`
}

// Label names the member.
func (s *EtcdLeave) Label() string { return "no etcd member " + s.Name }

// Check asks the store.
func (s *EtcdLeave) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	var c Change
	err := s.Store.with(ctx, h, func(_ context.Context, _ host.Etcd, members []host.Member) error {
		for _, m := range members {
			if m.Name == s.Name {
				c = Change{Action: Delete, Kind: "etcd", Name: s.Name, Note: "remove the member"}
			}
		}
		return nil
	})
	return c, err
}

// Apply removes the member. etcd itself refuses what would cost the majority.
func (s *EtcdLeave) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	return s.Store.with(ctx, h, func(ctx context.Context, etcd host.Etcd, members []host.Member) error {
		for _, m := range members {
			if m.Name == s.Name {
				if err := etcd.Remove(ctx, m.ID); err != nil {
					return fmt.Errorf("remove %s from etcd: %w", s.Name, err)
				}
			}
		}
		return nil
	})
}
