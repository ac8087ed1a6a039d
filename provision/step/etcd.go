package step

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"clusterctl/provision/host"
)

// Store describes how a control-plane machine reaches the store.
type Store struct {
	Endpoints []string `json:"endpoints"`
	CA        string   `json:"ca"` // path on the machine
	Cert      string   `json:"cert"`
	Key       string   `json:"key"`
}

func (s Store) withClient(ctx context.Context, h host.Host,
	f func(context.Context, host.Etcd, []host.Member) error) error {
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

// Members returns the members of the store.
func (s Store) Members(ctx context.Context, h host.Host, limit time.Duration) (list []host.Member, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = s.withClient(ctx, h, func(_ context.Context, _ host.Etcd, members []host.Member) error {
		list = members
		return nil
	})
	return list, err
}

// retryUnsettled repeats a change of the members while the store waits for members that have just started.
func retryUnsettled(ctx context.Context, change func() error) error {
	ctx, cancel := context.WithTimeout(ctx, unsettledTimeout)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := change()
		if !errors.Is(err, host.ErrUnsettled) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// unsettledTimeout is three times as long as etcd waits.
const unsettledTimeout = 15 * time.Second

// RemoveFormerEtcd removes the data of a member that is no longer in the store, because the machine could not join
// again with it. It keeps the data of a present member.
type RemoveFormerEtcd struct {
	Store Store  `json:"store"`
	Unit  string `json:"unit"`
	// Manifest is the path of the member's static pod, if it is one.
	Manifest string `json:"manifest,omitempty"`
	DataDir  string `json:"dataDir"`
	// Former are the store's cluster IDs before restores. Data with these IDs is moved aside even while the member
	// runs, because it may contain what the store has lost.
	Former []string `json:"former,omitempty"`
}

// Label names the directory.
func (s *RemoveFormerEtcd) Label() string { return "former etcd data in " + s.DataDir }

// Check asks the store for the member that the data belongs to. If the store does not answer, Check reports no change,
// because the member may still be in the store.
func (s *RemoveFormerEtcd) Check(ctx context.Context, h host.Host, w *Walk) (Change, error) {
	data, err := host.ReadEtcdData(h, s.DataDir)
	if err != nil { // there is no data, or etcd itself will report that it cannot be read
		return Change{}, nil
	}
	if slices.Contains(s.Former, strconv.FormatUint(data.Cluster, 16)) {
		w.Touch(s.DataDir)
		return Change{
			Action: Delete,
			Kind:   "directory",
			Name:   s.DataDir,
			Note:   "of the store before it was restored; moved to " + s.asidePath(data),
		}, nil
	}
	if u, err := h.Unit(ctx, s.Unit); err != nil || u.Active == "active" {
		return Change{}, err
	}
	former := false
	ctx, cancel := context.WithTimeout(ctx, formerTimeout)
	defer cancel()
	_ = s.Store.withClient(ctx, h, func(_ context.Context, _ host.Etcd, members []host.Member) error {
		former = !slices.ContainsFunc(members, func(m host.Member) bool { return m.ID == data.Member })
		return nil
	})
	if !former {
		return Change{}, nil
	}
	w.Touch(s.DataDir)
	return Change{Action: Delete, Kind: "directory", Name: s.DataDir, Note: "left by a former member"}, nil
}

const formerTimeout = 10 * time.Second

// Apply stops the member and removes, or moves aside, its data.
func (s *RemoveFormerEtcd) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := h.Stop(ctx, s.Unit); err != nil {
		return err
	}
	if s.Manifest != "" {
		if err := h.RemoveAll(s.Manifest); err != nil {
			return err
		}
	}
	if data, err := host.ReadEtcdData(h, s.DataDir); err == nil &&
		slices.Contains(s.Former, strconv.FormatUint(data.Cluster, 16)) {
		if err := h.RemoveAll(s.asidePath(data)); err != nil { // an earlier copy of the same member's data
			return err
		}
		return h.Rename(s.DataDir+"/member", s.asidePath(data))
	}
	return h.RemoveAll(s.DataDir + "/member")
}

func (s *RemoveFormerEtcd) asidePath(data host.EtcdData) string {
	return fmt.Sprintf("%s/former-%x-%x", s.DataDir, data.Cluster, data.Member)
}

// EtcdJoin adds this machine to the store as a learner before its member first starts. It also writes the list of the
// store's members, because a member starts only with exactly that list.
type EtcdJoin struct {
	Store       Store  `json:"store"`
	Name        string `json:"name"`
	PeerURL     string `json:"peerURL"`
	DataDir     string `json:"dataDir"`
	MembersFile string `json:"membersFile"`
}

// Label names the member.
func (s *EtcdJoin) Label() string { return "etcd member " + s.Name }

// Check reports whether the member has never run here. A failed start leaves a directory without a log.
func (s *EtcdJoin) Check(_ context.Context, h host.Host, w *Walk) (Change, error) {
	former := len(w.Touched([]string{s.DataDir})) > 0 // the data is removed in this walk
	if _, err := h.List(s.DataDir + "/member"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Change{}, err // a read error must not lead to the removal of an existing member
	}
	if _, err := host.ReadEtcdData(h, s.DataDir); !errors.Is(err, fs.ErrNotExist) && !former {
		return Change{}, nil // etcd itself reports an unreadable log
	}
	return Change{Action: Create, Kind: "etcd", Name: s.Name, Note: "join as learner"}, nil
}

// Apply adds the learner unless the store lists it already.
func (s *EtcdJoin) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	return s.Store.withClient(ctx, h, func(ctx context.Context, etcd host.Etcd, members []host.Member) error {
		if err := s.addLearner(ctx, etcd, members); err != nil {
			return err
		}
		members, err := etcd.Members(ctx)
		if err != nil {
			return fmt.Errorf("look beside whom %s begins: %w", s.Name, err)
		}
		if err := h.RemoveAll(s.DataDir + "/member"); err != nil { // left by a failed start
			return err
		}
		return h.WriteFile(s.MembersFile, strings.NewReader(s.initialCluster(members)+"\n"), 0o600, 0, 0)
	})
}

func (s *EtcdJoin) addLearner(ctx context.Context, etcd host.Etcd, members []host.Member) error {
	for _, m := range members {
		if m.PeerURL == s.PeerURL && m.Name == "" {
			return nil // added by an interrupted run
		}
	}
	for _, m := range members {
		// A member that lost its disk cannot resume as the same member. A learner that has never started prevents
		// others from joining, and is added again when its machine changes.
		if m.PeerURL != s.PeerURL && m.Name != s.Name && (m.Name != "" || !m.Learner) {
			continue
		}
		if err := retryUnsettled(ctx, func() error { return etcd.Remove(ctx, m.ID) }); err != nil {
			return fmt.Errorf("remove the former member at %s: %w", m.PeerURL, err)
		}
	}
	if err := retryUnsettled(ctx, func() error { return etcd.AddLearner(ctx, s.PeerURL) }); err != nil {
		return fmt.Errorf("add %s to etcd: %w", s.Name, err)
	}
	return nil
}

// initialCluster returns the list of members for etcd's initial-cluster flag. Members that have not started yet get a
// generated name.
func (s *EtcdJoin) initialCluster(members []host.Member) string {
	var list []string
	for _, m := range members {
		name := m.Name
		if m.PeerURL == s.PeerURL {
			name = s.Name
		} else if name == "" {
			name = fmt.Sprintf("member-%x", m.ID)
		}
		list = append(list, name+"="+m.PeerURL)
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// EtcdVote promotes a learner that has caught up to a voting member.
type EtcdVote struct {
	Store Store  `json:"store"`
	Name  string `json:"name"`
}

// Label names the member.
func (s *EtcdVote) Label() string { return "etcd vote of " + s.Name }

// Check reports a change unless the store answers and lists the member as a voting member.
func (s *EtcdVote) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	var c Change
	err := s.Store.withClient(ctx, h, func(_ context.Context, _ host.Etcd, members []host.Member) error {
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

// Apply promotes the member as soon as the leader accepts it.
func (s *EtcdVote) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	return s.Store.withClient(ctx, h, func(ctx context.Context, etcd host.Etcd, members []host.Member) error {
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

// EtcdLeave removes a member from the store.
type EtcdLeave struct {
	Store Store  `json:"store"`
	Name  string `json:"name"`
	// ID is the member's ID in hex, for members that a name does not identify.
	ID string `json:"id,omitempty"`
}

// Label names the member.
func (s *EtcdLeave) Label() string { return "no etcd member " + cmp.Or(s.Name, s.ID) }

func (s *EtcdLeave) matches(m host.Member) bool {
	if s.ID != "" {
		return strconv.FormatUint(m.ID, 16) == s.ID
	}
	return m.Name == s.Name
}

// Check reports a change if the store has the member, and if the store does not answer.
func (s *EtcdLeave) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	leave := Change{Action: Delete, Kind: "etcd", Name: cmp.Or(s.Name, s.ID), Note: "remove the member"}
	var c Change
	err := s.Store.withClient(ctx, h, func(_ context.Context, _ host.Etcd, members []host.Member) error {
		if slices.ContainsFunc(members, s.matches) {
			c = leave
		}
		return nil
	})
	if err != nil {
		return leave, nil
	}
	return c, nil
}

// Apply removes the member. etcd refuses a removal that would cost the majority.
func (s *EtcdLeave) Apply(ctx context.Context, h host.Host, _ *Walk) error {
	return s.Store.withClient(ctx, h, func(ctx context.Context, etcd host.Etcd, members []host.Member) error {
		for _, m := range members {
			if s.matches(m) {
				if err := retryUnsettled(ctx, func() error { return etcd.Remove(ctx, m.ID) }); err != nil {
					return fmt.Errorf("remove %s from etcd: %w", cmp.Or(s.Name, s.ID), err)
				}
			}
		}
		return nil
	})
}
