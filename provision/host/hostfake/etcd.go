package hostfake

import (
	"context"
	"fmt"
	"sync"

	"clusterctl/provision/host"
)

// Etcd is a membership in memory.
type Etcd struct {
	mu   sync.Mutex
	list []host.Member
	next uint64
}

// NewEtcd returns the membership of a store that these members began.
func NewEtcd(names ...string) *Etcd {
	e := &Etcd{}
	for _, n := range names {
		e.next++
		e.list = append(e.list, host.Member{ID: e.next, Name: n, PeerURL: "https://" + n + ":2380"})
	}
	return e
}

// Members lists the members.
func (e *Etcd) Members(context.Context) ([]host.Member, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]host.Member(nil), e.list...), nil
}

// AddLearner adds one; as with etcd there is at most one at a time.
func (e *Etcd) AddLearner(_ context.Context, peerURL string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.list {
		if m.Learner {
			return fmt.Errorf("etcdserver: too many learner members in cluster")
		}
	}
	e.next++
	e.list = append(e.list, host.Member{ID: e.next, PeerURL: peerURL, Learner: true})
	return nil
}

// Started gives a member the name that it has once it runs.
func (e *Etcd) Started(peerURL, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, m := range e.list {
		if m.PeerURL == peerURL {
			e.list[i].Name = name
		}
	}
}

// Promote gives a learner a vote.
func (e *Etcd) Promote(_ context.Context, id uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, m := range e.list {
		if m.ID == id {
			e.list[i].Learner = false
			return nil
		}
	}
	return fmt.Errorf("etcdserver: member not found")
}

// Remove removes a member.
func (e *Etcd) Remove(_ context.Context, id uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, m := range e.list {
		if m.ID == id {
			e.list = append(e.list[:i], e.list[i+1:]...)
			return nil
		}
	}
	return fmt.Errorf("etcdserver: member not found")
}

// Close does nothing.
func (e *Etcd) Close() error { return nil }
