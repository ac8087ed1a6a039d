package hostfake

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"clusterctl/daemons/config/store"
	"clusterctl/provision/host"
)

// ClusterID is the ID of every fake store.
const ClusterID = 0xc1

// RestoredID is the ID of every fake store that was restored.
const RestoredID = 0xc2

const walPath = "/var/lib/etcd/member/wal/0000000000000000-0000000000000000.wal"

// startEtcd simulates the start of etcd by its unit: it creates data and reports its name. A joining member starts only
// if its list of members matches the store's. The caller holds h.mu.
func (h *Host) startEtcd() error {
	flag := func(name string) string {
		_, rest, _ := strings.Cut(string(h.files[unitDir+"etcd.service"].content), "--"+name+"=")
		value, _, _ := strings.Cut(rest, " ")
		return value
	}
	if _, ok := h.files[walPath]; !ok && h.Store != nil && flag("initial-cluster-state") == "existing" {
		beside := flag("initial-cluster")
		if f, ok := h.files[flag("initial-cluster-file")]; ok {
			beside = strings.TrimSpace(string(f.content))
		}
		if err := h.Store.compareMembers(beside); err != nil {
			h.files["/var/lib/etcd/member/snap/db"] = file{info: host.Info{Mode: 0o600}}
			return err
		}
	}
	data := host.EtcdData{Cluster: ClusterID}
	if h.Store != nil {
		data.Cluster = h.Store.clusterID()
		data.Member = h.Store.recordStart(flag("initial-advertise-peer-urls"), flag("name"))
	}
	if _, ok := h.files[walPath]; !ok {
		h.files[walPath] = file{host.Info{Mode: 0o600}, host.AppendEtcdData(nil, data)}
	}
	return nil
}

// restoreMember simulates making a member from a snapshot, as the only member of a store with a new ID. The caller
// holds h.mu.
func (h *Host) restoreMember(q store.Request) error {
	if _, ok := h.files[walPath]; ok {
		return fmt.Errorf("create a member in %s: it already contains a member's data", q.Data)
	}
	data := host.EtcdData{Cluster: RestoredID}
	if h.Store != nil {
		h.Store.mu.Lock()
		h.Store.next++
		h.Store.cluster = RestoredID
		h.Store.members = []host.Member{{ID: h.Store.next, Name: q.Member, PeerURL: q.PeerURL}}
		data.Member = h.Store.next
		h.Store.mu.Unlock()
	}
	h.files[walPath] = file{host.Info{Mode: 0o600}, host.AppendEtcdData(nil, data)}
	return nil
}

// Etcd is a list of members in memory.
type Etcd struct {
	mu      sync.Mutex
	members []host.Member
	next    uint64

	cluster uint64 // zero means ClusterID
}

func (e *Etcd) clusterID() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cluster == 0 {
		return ClusterID
	}
	return e.cluster
}

// NewEtcd returns the members of a store that began with these names.
func NewEtcd(names ...string) *Etcd {
	e := &Etcd{}
	for _, n := range names {
		e.next++
		e.members = append(e.members, host.Member{ID: e.next, Name: n, PeerURL: "https://" + n + ":2380"})
	}
	return e
}

// Members lists the members.
func (e *Etcd) Members(context.Context) ([]host.Member, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]host.Member(nil), e.members...), nil
}

// AddLearner adds a learner. As in etcd, there is at most one learner at a time.
func (e *Etcd) AddLearner(_ context.Context, peerURL string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.members {
		if m.Learner {
			return fmt.Errorf("etcdserver: too many learner members in cluster")
		}
	}
	e.next++
	e.members = append(e.members, host.Member{ID: e.next, PeerURL: peerURL, Learner: true})
	return nil
}

// compareMembers compares the members in an initial-cluster list with the store's members.
func (e *Etcd) compareMembers(list string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	named := map[string]bool{}
	for part := range strings.SplitSeq(list, ",") {
		_, url, _ := strings.Cut(part, "=")
		named[url] = true
	}
	for _, m := range e.members {
		if !named[m.PeerURL] {
			return fmt.Errorf("error validating peerURLs: %s is not among %q", m.PeerURL, list)
		}
	}
	if len(named) != len(e.members) {
		return fmt.Errorf("error validating peerURLs: member count is unequal: %q, and there are "+
			"%d", list, len(e.members))
	}
	return nil
}

// recordStart records the name of a member that has started, and returns its ID.
func (e *Etcd) recordStart(peerURL, name string) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, m := range e.members {
		if m.PeerURL == peerURL || m.Name == name {
			e.members[i].Name, e.members[i].PeerURL = name, peerURL
			return m.ID
		}
	}
	return 0
}

// Promote turns a learner into a voting member.
func (e *Etcd) Promote(_ context.Context, id uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, m := range e.members {
		if m.ID == id {
			e.members[i].Learner = false
			return nil
		}
	}
	return fmt.Errorf("etcdserver: member not found")
}

// Remove removes a member.
func (e *Etcd) Remove(_ context.Context, id uint64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, m := range e.members {
		if m.ID == id {
			e.members = append(e.members[:i], e.members[i+1:]...)
			return nil
		}
	}
	return fmt.Errorf("etcdserver: member not found")
}

// Close does nothing.
func (e *Etcd) Close() error { return nil }
