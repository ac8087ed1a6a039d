package run

import (
	"context"
	"fmt"
	"slices"
	"time"

	"clusterctl/certs"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/decide"
	"clusterctl/provision/run/etcd"
	"clusterctl/provision/state"
)

// draft reads the state and returns a run with the state that it begins with: with the keys that it needs, and with the
// names that the configuration gives. The state on disk stays as it is.
func (e *Engine) draft() (*Prepared, error) {
	s, err := e.Store.Read()
	if err != nil {
		return nil, err
	}
	if s == nil {
		if s, err = state.New(e.Config.Name, e.newAuthorities); err != nil {
			return nil, err
		}
	}
	if err := e.checkState(s); err != nil {
		return nil, err
	}
	if name, err := e.addImages(); err != nil {
		return nil, fmt.Errorf("image.%s: %w", name, err)
	}
	p := e.newPrepared(s)
	p.Secrets = union(e.Config.Secrets, s.Keys.Secrets)
	p.situation.IsNewCluster = !decide.HasStarted(s)
	if e.IsRefreshOnly {
		return p, nil
	}
	d, err := p.situation.Draft(s)
	if err != nil {
		return nil, err
	}
	p.situation.FormerAddresses, p.HasRenames = d.FormerAddresses, d.HasRenames
	p.setState(d.State)
	return p, nil
}

// checkState returns an error if no run with this configuration may begin with the state s.
func (e *Engine) checkState(s *state.State) error {
	if r := s.Restore; r != nil && !r.HasFirstMember && !e.IsDestroy {
		return fmt.Errorf("a restore of the store from %s, started %s, was interrupted: run clusterctl etcd snapshot "+
			"restore again, which starts it again", r.Snapshot, r.Began.UTC().Format(time.RFC3339))
	}
	if s.Cluster != e.Config.Name {
		return fmt.Errorf("the state in %s is of cluster %q, the configuration is of %q: a cluster cannot be renamed; "+
			"declare the new one in a folder of its own", e.Store.Dir, s.Cluster, e.Config.Name)
	}
	if err := plan.CheckUnchangeable(e.Config, s.Fixed); err != nil && !e.IsDestroy {
		return err
	}
	return nil
}

// addImages adds the declared images to the bundle. It returns the name of the image that an error is about.
func (e *Engine) addImages() (name string, err error) {
	for _, i := range e.Config.Images {
		if _, err := e.Bundle.Add(i.Reference, i.Archive); err != nil {
			return i.Name, err
		}
	}
	return "", nil
}

// newAuthorities makes the authorities of a new cluster.
func (e *Engine) newAuthorities() (map[string]certs.Pair, error) {
	pairs := map[string]certs.Pair{}
	for name, commonName := range certs.CommonNames {
		p, err := certs.NewCA(commonName, 0, e.now())
		if err != nil {
			return nil, err
		}
		pairs[name] = p
	}
	return pairs, nil
}

// decideMembers adds to the state with which the run begins what the machines report of the store, and the members that
// will start.
func (p *Prepared) decideMembers(context.Context) error {
	if err := etcd.CheckLostMajority(p.State, p.session.Machines); err != nil {
		return err
	}
	var removed []string
	for _, m := range p.session.Machines {
		if m.Action == plan.Remove && m.UnreachedReason != nil || etcd.HasLostData(p.State, m) {
			removed = append(removed, m.Name)
		}
	}
	next := p.State.Clone()
	next.Etcd = plan.DecideMembers(p.engine.Config, p.State, removed)
	p.setState(next)
	return nil
}

// union returns the sorted union of two lists, without duplicates.
func union(a, b []string) []string {
	list := append(slices.Clone(a), b...)
	slices.Sort(list)
	return slices.Compact(list)
}
