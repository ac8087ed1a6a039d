// Package rebuild reconstructs a lost state from what machines and the API report.
package rebuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"clusterctl/certs"
	"clusterctl/hcl/config"
	"clusterctl/provision/role"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

// State reconstructs the state of a cluster from the machines of the session, which it connects to, and from the API.
// It changes nothing on them and writes nothing. notes describe what it could not find out.
func State(
	ctx context.Context,
	c *config.Cluster,
	in *session.Session,
	connect func(*state.State, *config.Cluster) (session.Cluster, error),
) (s *state.State, notes []string, err error) {
	var mu sync.Mutex
	found := map[string]role.Remains{} // by address
	err = in.ForEach(ctx, in.Machines, func(ctx context.Context, m *session.Machine) error {
		if err := in.Connect(ctx, m); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, session.FactsTimeout)
		defer cancel()
		remains, err := m.Agent.Remains(ctx)
		mu.Lock()
		found[m.Address] = remains
		mu.Unlock()
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("every declared machine is asked, so that none is taken for a new one; take out "+
			"of the configuration what is gone for good:\n%w", err)
	}
	if s, notes, err = stateFromRemains(c.Name, in.Now(), in.Machines, found); err != nil {
		return nil, nil, err
	}
	live, err := connect(s, c)
	if err != nil {
		return nil, nil, err
	}
	objects, problems, err := live.Applied(ctx, c)
	if err != nil {
		notes = append(notes, fmt.Sprintf("the API was not asked which objects were applied, so that what is declared "+
			"no more will not be removed by itself; bring it back (apply does) and rebuild again: %v", err))
	}
	s.Objects = objects
	if now, err := live.Revision(ctx); err == nil {
		s.Revision = now // the revision only has to be higher than where the store began when it was last restored
	}
	nodes, err := live.Nodes(ctx)
	if err == nil {
		for _, name := range slices.Sorted(maps.Keys(nodes)) {
			if !slices.ContainsFunc(c.Machines, func(m config.Machine) bool { return m.Name == name }) {
				notes = append(notes, fmt.Sprintf("node %s is in the cluster, and no block declares it: write one for "+
					"it and rebuild again, and clusterctl looks after it", name))
			}
		}
	}
	return s, append(notes, problems...), nil
}

// stateFromRemains makes a state from what the machines have reported.
func stateFromRemains(
	cluster string,
	now time.Time,
	machines []*session.Machine,
	found map[string]role.Remains,
) (*state.State, []string, error) {
	first, err := agreedRemains(machines, found)
	if err != nil {
		return nil, nil, err
	}
	s, err := state.New(cluster, func() (map[string]certs.Pair, error) { return nil, nil })
	if err != nil {
		return nil, nil, err
	}
	s.CAs, s.Keys, s.Fixed = first.CAs, first.Keys, first.Fixed
	if s.Keys.Encryption, err = role.ReadEncryption(first.Encryption); err != nil {
		return nil, nil, err
	}
	notes := addRotations(s, first, now)
	var errs []error
	members := map[string]bool{} // members of the store, as it lists them itself
	for _, m := range machines {
		r := found[m.Address]
		if r.Name == "" {
			notes = append(notes, m.Address+": nothing of a cluster is on it; the next apply makes it part of this one")
			continue
		}
		if err := addMachine(s, m, r); err != nil {
			errs = append(errs, m.Wrap(err))
		}
		if r.Name == m.Name {
			for _, member := range r.Members {
				members[member.Name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if _, ok := s.Etcd[name]; !ok && name != "" {
			notes = append(notes, fmt.Sprintf("%s is a member of the store, and no block declares it: write one for "+
				"it and rebuild again, so that it can leave in good order", name))
		}
	}
	notes = append(notes, "keys that encrypted the store before the present ones were in the state alone: copies of "+
		"the store from their time cannot be read")
	return s, notes, errors.Join(errs...)
}

// addRotations adds to s the replacements of authorities and keys that were in progress, and returns a note for each.
func addRotations(s *state.State, first role.Remains, now time.Time) (notes []string) {
	replaced := map[string][]byte{state.ServiceAccount: first.FormerService}
	for name := range certs.CommonNames {
		replaced[name] = first.NonSigning(name)
	}
	for _, name := range slices.Sorted(maps.Keys(replaced)) {
		if other := replaced[name]; len(other) > 0 {
			if s.Rotations == nil {
				s.Rotations = map[string]state.Rotation{}
			}
			s.Rotations[name] = state.Rotation{
				Phase: state.PhaseIssue,
				Peer:  other,
				Cross: first.Cross(name),
				Since: now,
				Keep:  state.UntilFinished,
			}
			notes = append(notes, fmt.Sprintf("%s was being replaced: the former one and the next one are trusted "+
				"until clusterctl certs rotate -finish", name))
		}
	}
	return notes
}

// addMachine adds to s what a machine of the cluster has reported. If it returns an error, s is not to be used.
func addMachine(s *state.State, m *session.Machine, r role.Remains) (err error) {
	if r.Name != m.Name {
		return fmt.Errorf("it is %q in the cluster, and is declared with the name %q: write name = %q in this block",
			r.Name, m.Name, r.Name)
	}
	machine := m.Machine
	machine.Roles = r.Roles
	s.Machines[m.Address] = state.Machine{
		Machine:   machine,
		HasJoined: true,
		Identity:  m.Facts.Identity,
		Issued:    r.Issued,
		Release:   m.Facts.Release,
	}
	if m.Facts.Release != nil {
		s.RecordRelease(*m.Facts.Release)
	}
	s.Revoke(r.Revoked...)
	if r.Token != "" {
		s.Token = r.Token
	}
	if m.Facts.EtcdCluster != "" {
		if s.EtcdCluster != "" && s.EtcdCluster != m.Facts.EtcdCluster {
			err = fmt.Errorf("its store is %s, and others' is %s: it was restored or began alone. Take it out of the "+
				"configuration, rebuild, and bring it in again", m.Facts.EtcdCluster, s.EtcdCluster)
		}
		s.EtcdCluster = m.Facts.EtcdCluster
	}
	if r.Member != nil {
		s.Etcd[m.Name] = *r.Member
	}
	return err
}

// agreedRemains returns what one machine of the control plane reports, if all machines agree on what they share.
func agreedRemains(machines []*session.Machine, found map[string]role.Remains) (first role.Remains, err error) {
	var from *session.Machine
	for _, m := range machines {
		if r := found[m.Address]; slices.Contains(r.Roles, config.RoleControlPlane) &&
			len(r.Keys.CAs) == len(certs.CommonNames) &&
			from == nil {
			from, first = m, r
		}
	}
	if from == nil {
		return first, errors.New("none of the declared machines has the keys of a cluster: a state is rebuilt from " +
			"/etc/kubernetes/pki on a machine of the control plane. Without any, a new cluster is made by apply")
	}
	var errs []error
	for _, m := range machines {
		r := found[m.Address]
		if r.Name == "" {
			continue
		}
		if !slices.ContainsFunc(certs.SplitPEM(r.Trusted[certs.ClusterCA]),
			func(ca []byte) bool { return bytes.Contains(first.Trusted[certs.ClusterCA], ca) }) {
			errs = append(errs, m.Wrap(fmt.Errorf(
				"it serves another cluster than %s, or its authorities were changed meanwhile", from.Address)))
			continue
		}
		if !slices.Contains(r.Roles, config.RoleControlPlane) {
			continue
		}
		var differ []string
		for what, same := range map[string]bool{
			"the authorities' keys":       maps.EqualFunc(r.Keys.CAs, first.Keys.CAs, bytes.Equal),
			"the authorities":             maps.EqualFunc(r.Trusted, first.Trusted, bytes.Equal),
			"the service accounts' key":   bytes.Equal(r.Keys.ServiceAccount, first.Keys.ServiceAccount),
			"the keys of what is stored":  bytes.Equal(r.Encryption, first.Encryption),
			"the networks and the domain": fmt.Sprint(r.Fixed) == fmt.Sprint(first.Fixed),
		} {
			if !same {
				differ = append(differ, what)
			}
		}
		if len(differ) > 0 {
			slices.Sort(differ)
			errs = append(errs, m.Wrap(fmt.Errorf("%s are not those of %s: a change of them was under way. Take the "+
				"machine that is behind out of the configuration, rebuild, and bring it in again",
				strings.Join(differ, ", "), from.Address)))
		}
	}
	return first, errors.Join(errs...)
}
