package etcd

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"clusterctl/daemons/config/store"
	"clusterctl/hcl/config"
	"clusterctl/provision/role"
	"clusterctl/provision/run/session"
)

// Save takes a snapshot of the member of the named machine, or of the leader if name is empty.
func (a *Access) Save(ctx context.Context, name, reason string) (s store.Snapshot, notes []string, err error) {
	m, err := a.reachMachine(ctx, name)
	if err != nil {
		return s, nil, err
	}
	return a.saveSnapshot(ctx, m, reason)
}

func (a *Access) saveSnapshot(ctx context.Context, m *session.Machine, reason string) (s store.Snapshot, notes []string,
	err error) {
	q := a.snapshotRequest(m)
	q.Op, q.Reason = store.Save, reason
	answer, err := a.callStore(ctx, m, saveTimeout, q)
	if err != nil {
		return s, nil, fmt.Errorf("%s: take a snapshot: %w", m.Address, err)
	}
	if len(answer.Snapshots) != 1 {
		return s, nil, fmt.Errorf("%s: it says nothing of the snapshot that it took", m.Address)
	}
	return withLocation(answer.Snapshots, m.Name)[0], answer.Notes, nil
}

// snapshotRequest returns a request about the snapshots that a machine stores.
func (a *Access) snapshotRequest(m *session.Machine) store.Request {
	return store.Request{
		Settings:  role.SnapshotSettings,
		Directory: a.directory(),
		Member:    m.Name,
		Endpoint:  role.MemberURL,
		Client:    role.StoreClient(),
	}
}

func (a *Access) directory() string {
	if s := a.Config.Etcd.Snapshot; s != nil {
		return s.Directory
	}
	return store.Directory
}

// Path returns the path of a snapshot on a machine.
func (a *Access) Path(name string) string { return a.directory() + "/" + name + ".db" }

// withLocation replaces "local" by the machine's name in the locations of snapshots.
func withLocation(list []store.Snapshot, machine string) []store.Snapshot {
	for i := range list {
		for j, in := range list[i].In {
			if in == "local" {
				list[i].In[j] = machine
			}
		}
	}
	return list
}

// Snapshots lists the snapshots of all machines and of the bucket, newest first.
func (a *Access) Snapshots(ctx context.Context) (all []store.Snapshot, notes []string, err error) {
	return a.askAll(ctx, func(q *store.Request) { q.Op = store.List })
}

// Prune deletes snapshots beyond keep and returns them. Zero means the declared number. If name is not empty, Prune
// deletes only that snapshot.
func (a *Access) Prune(ctx context.Context, keep int, name string) (removed []store.Snapshot, notes []string,
	err error) {
	return a.askAll(ctx, func(q *store.Request) { q.Op, q.Keep, q.Name = store.Prune, int64(keep), name })
}

func (a *Access) askAll(
	ctx context.Context,
	ask func(*store.Request),
) (all []store.Snapshot, notes []string, err error) {
	var mu sync.Mutex
	found := map[string]store.Snapshot{}
	err = a.Session.ForEach(ctx, a.reached(), func(ctx context.Context, m *session.Machine) error {
		q := a.snapshotRequest(m)
		ask(&q)
		answer, err := a.callStore(ctx, m, databaseTimeout, q)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, n := range answer.Notes {
			notes = append(notes, m.Name+": "+n)
		}
		for _, s := range withLocation(answer.Snapshots, m.Name) {
			if before, ok := found[s.Name]; ok {
				s.In = append(s.In, before.In...)
			}
			slices.Sort(s.In)
			s.In = slices.Compact(s.In)
			found[s.Name] = s
		}
		return nil
	})
	all = slices.SortedFunc(maps.Values(found), func(a, b store.Snapshot) int {
		if c := b.Taken.Compare(a.Taken); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	slices.Sort(notes)
	return all, notes, err
}

// Read writes a snapshot to w, from the machine whose member it was taken of.
func (a *Access) Read(ctx context.Context, s store.Snapshot, w io.Writer) error {
	m, err := a.reachMachine(ctx, s.Member)
	if err != nil {
		return err
	}
	return m.Agent.Read(ctx, a.Path(s.Name), s.Size, w)
}

// LastSnapshots returns the outcome of the last snapshot on each reached machine with a member, by machine name.
func (a *Access) LastSnapshots() map[string]*store.Outcome {
	list := map[string]*store.Outcome{}
	for _, e := range a.members() {
		for _, m := range a.reached() {
			if m.Name == e.Name {
				list[m.Name] = m.Facts.Snapshot
			}
		}
	}
	return list
}

// SnapshotProblem describes what is wrong with a machine's snapshots, or returns "".
func SnapshotProblem(declared *config.Snapshot, o *store.Outcome, now time.Time) string {
	switch {
	case o == nil:
		return ""
	case o.Error != "":
		return fmt.Sprintf("the snapshot of %s failed: %s", o.Tried.UTC().Format(time.RFC3339), o.Error)
	case declared != nil && o.Good != nil && declared.Schedule.IsOverdue(o.Good.Taken, now):
		return "the last good snapshot is " + FormatAge(
			now.Sub(o.Good.Taken),
		) + " old, and two since were due: see journalctl -u etcd-snapshot there"
	}
	return ""
}

// FormatAge formats a duration in its largest fitting unit.
func FormatAge(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
