package etcd

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"clusterctl/daemons/config/store"
	"clusterctl/provision/role"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// Restore specifies the source of a restore, and its options.
type Restore struct {
	Name       string // a snapshot on a machine or in the bucket; empty means the newest good one
	File       string // or: the path of a snapshot on this computer
	Digest     string // of File, SHA-256
	Member     string // or: the machine whose etcd member's data directory is used
	AllowsLoss bool   // other data of the store may be discarded
	// Approve is called with a description of what will be done, before anything changes. An error stops the restore.
	Approve func(text string) error
}

// revisionBump is the number of revisions by which a restored store begins above the snapshot's revision. It begins
// above the revision where the last restore began if that is higher, because the snapshot may be older. The number
// exceeds all revisions that clients can have seen since: it allows more than a thousand writes a second for a week.
const revisionBump = 1_000_000_000

func revisionBumpOver(snapshot, last int64) uint64 {
	return uint64(max(snapshot, last) - snapshot + revisionBump)
}

// errStoreWorks reports that a restore would discard a store that works or may still work.
var errStoreWorks = errors.New("nothing is restored")

// Restore makes the store of the reached machines from r, and returns the name of the machine that has its first
// member. It stops all API servers and members, and moves existing data aside. Its start is recorded in the state. A
// restore that is interrupted starts over until the first member has its data.
func (a *Access) Restore(ctx context.Context, r Restore) (first string, err error) {
	if err := a.checkRestorable(ctx, r); err != nil {
		return "", err
	}
	at, snapshot, err := a.chooseSource(ctx, r)
	if err != nil {
		return "", err
	}
	if missing := a.State.Keys.Encryption.AddFormerKeys(snapshot.Encryption); len(missing) > 0 {
		return "", fmt.Errorf("%s has values that are encrypted with %s, which the state does not have: bring back "+
			"the state that has it (.clusterctl/versions), or choose another snapshot", snapshot.Name,
			strings.Join(missing, ", "))
	}
	moved := fmt.Sprintf("%s/former-%s", role.EtcdData, a.Session.Now().UTC().Format("20060102T150405Z"))
	if r.Approve != nil {
		if err := r.Approve(a.describeRestore(at, snapshot, r, moved)); err != nil {
			return "", err
		}
	}
	if err := a.stopStore(ctx); err != nil {
		return "", err
	}
	file := a.sourcePath(at, snapshot, r)
	if r.Member != "" {
		if snapshot, err = a.snapshotOwnData(ctx, at, file); err != nil {
			return "", err
		}
	}
	if err := a.makeFirstMember(ctx, at, snapshot, file, sourceName(snapshot, r), moved); err != nil {
		return "", err
	}
	if r.Member != "" || r.File != "" {
		if err := at.Agent.Apply(ctx, []step.Step{&step.Absent{Path: path.Dir(file)}}, nil); err != nil {
			return "", fmt.Errorf("%s: clean up: %w", at.Address, err)
		}
	}
	return at.Name, nil
}

// snapshotOwnData makes a snapshot of the data that a machine's stopped member has.
func (a *Access) snapshotOwnData(ctx context.Context, at *session.Machine, file string) (store.Snapshot, error) {
	a.Session.Report(report.Event{Kind: report.Note, Machine: at.Address, Message: "making a snapshot of its own data"})
	answer, err := a.callStore(ctx, at, saveTimeout,
		store.Request{Op: store.FromData, Data: role.EtcdData, File: file})
	if err != nil {
		return store.Snapshot{},
			fmt.Errorf("%s: %w. Nothing was changed: clusterctl apply starts everything again", at.Address, err)
	}
	snapshot := answer.Snapshots[0]
	if missing := a.State.Keys.Encryption.AddFormerKeys(snapshot.Encryption); len(missing) > 0 {
		return snapshot, fmt.Errorf("%s has values that are encrypted with %s, which the state does not have. Nothing "+
			"was changed: bring back the state that has it (.clusterctl/versions)", at.Name,
			strings.Join(missing, ", "))
	}
	return snapshot, nil
}

// sourceName returns the name of the source for messages.
func sourceName(s store.Snapshot, r Restore) string {
	if r.Member != "" {
		return "the data of " + r.Member
	}
	if r.File != "" {
		return r.File
	}
	return s.Name
}

// checkRestorable returns an error if the store must not be discarded.
func (a *Access) checkRestorable(ctx context.Context, r Restore) error {
	if unreached := a.Unreached(); len(unreached) > 0 {
		var list []string
		for name, err := range unreached {
			list = append(list, name+": "+err)
		}
		slices.Sort(list)
		return fmt.Errorf("%w: machines of the control plane are not reached, and may still serve the former store "+
			"(%s). Bring them back; or, when it is certain that they are off, name each with -exclude machine.NAME",
			errStoreWorks, strings.Join(list, "; "))
	}
	if r.AllowsLoss {
		return nil
	}
	if list, err := a.Status(ctx); err == nil && HasMajority(list) {
		return fmt.Errorf("%w: the store works, %d of %d members answer, and what was written since the snapshot "+
			"would be lost. When that is what you want, name it: -allow-data-loss etcd", errStoreWorks,
			CountAnswering(list), len(list))
	}
	var left []string
	for _, m := range a.reached() {
		if m.Facts.HasEtcdData &&
			(a.State.EtcdCluster == "" || m.Facts.EtcdCluster == a.State.EtcdCluster) &&
			m.Name != r.Member {
			left = append(left, m.Name)
		}
	}
	switch members := len(a.State.Etcd); {
	case len(left) == 0 || a.State.Restore != nil:
		return nil
	case len(left) > members/2:
		return fmt.Errorf("%w: %s still have the store's data, which is a majority of its %d members: clusterctl "+
			"apply starts what does not run. When their data is damaged, name what is thrown away: -allow-data-loss "+
			"etcd", errStoreWorks, strings.Join(left, ", "), members)
	case r.Member == "":
		return fmt.Errorf("%w: %s still has the store's data, which is newer than any snapshot: use -from-member %s. "+
			"When that data is damaged, name what is thrown away: -allow-data-loss etcd", errStoreWorks,
			strings.Join(left, ", "), left[0])
	}
	return nil
}

// describeRestore describes what the restore would do.
func (a *Access) describeRestore(at *session.Machine, s store.Snapshot, r Restore, moved string) string {
	var text strings.Builder
	if r.Member != "" {
		fmt.Fprintf(&text, "The store is rebuilt from the data of %s: everything that its member knew stays.\n",
			at.Name)
	} else {
		when := "taken"
		if r.File != "" {
			when = "a file of" // the file's time; copying the file may have made it later than the snapshot
		}
		fmt.Fprintf(&text, "The store is rebuilt on %s from %s, %s %s (%s ago): revision %d, %d "+
			"keys.\n", at.Name, sourceName(s, r), when, s.Taken.UTC().Format(time.RFC3339),
			FormatAge(a.Session.Now().Sub(s.Taken)), s.Revision, s.Keys)
		text.WriteString("What was written since is lost.\n")
	}
	fmt.Fprintf(&text, "The API servers stop on %s. What data there is moves to %s on each.\n",
		strings.Join(a.Machines(), ", "), moved)
	text.WriteString("Pods go on running meanwhile. Revisions go on far above those that were seen, so that " +
		"all watches list again.\n")
	return text.String()
}

// stopStore stops all API servers, and then all members.
func (a *Access) stopStore(ctx context.Context) error {
	for _, part := range []struct {
		what  string
		steps []step.Step
	}{{"stopping the API server", role.StopServers()}, {"stopping the member of the store", role.StopMembers()}} {
		if err := a.Session.ForEach(ctx, a.reached(), func(ctx context.Context, m *session.Machine) error {
			a.Session.Report(report.Event{Kind: report.Note, Machine: m.Address, Message: part.what})
			return m.Agent.Apply(ctx, part.steps, nil)
		}); err != nil {
			return err
		}
	}
	return nil
}

// makeFirstMember moves existing data aside and makes the first member. It records in the state that the restore has
// begun before any data moves, and the new store once that exists.
func (a *Access) makeFirstMember(ctx context.Context, at *session.Machine, snapshot store.Snapshot, file, from,
	moved string) error {
	s := a.State
	former := []string{s.EtcdCluster, snapshot.Cluster}
	for _, m := range a.reached() {
		if _, member := s.Etcd[m.Name]; member {
			former = append(former, m.Facts.EtcdCluster)
		}
	}
	s.Restore = &state.Restore{Snapshot: from, Machine: at.Name, Began: a.Session.Now()}
	if err := a.Ledger.Write(); err != nil {
		return err
	}
	if err := a.Session.ForEach(ctx, a.reached(), func(ctx context.Context, m *session.Machine) error {
		return m.Agent.Apply(ctx, []step.Step{&step.MoveAside{From: role.EtcdData + "/member", To: moved}}, nil)
	}); err != nil {
		return err
	}
	if err := s.NewToken(); err != nil {
		return err
	}
	first := at.Name + "=" + role.PeerURL(at.Machine)
	a.Session.Report(report.Event{Kind: report.Note, Machine: at.Address, Message: "rebuilding the store from " + from})
	if _, err := a.callStore(ctx, at, saveTimeout,
		store.Request{Op: store.Restore, File: file, Data: role.EtcdData, Member: at.Name,
			PeerURL:        role.PeerURL(at.Machine),
			InitialCluster: first, Token: s.Token,
			RevisionBump: revisionBumpOver(snapshot.Revision, s.Revision)}); err != nil {
		return fmt.Errorf("%s: %w. The former data is in %s on each machine; mend what is said, and run this again",
			at.Address, err, moved)
	}
	facts, err := at.Agent.Facts(ctx)
	if err != nil {
		return err
	}
	for _, id := range former {
		if id != "" && id != facts.EtcdCluster && !slices.Contains(s.FormerStores, id) {
			s.FormerStores = append(s.FormerStores, id)
		}
	}
	s.Revision = snapshot.Revision + int64(revisionBumpOver(snapshot.Revision, s.Revision))
	s.EtcdCluster = facts.EtcdCluster
	s.Etcd = map[string]state.Member{at.Name: {InitialCluster: first}}
	s.Restore.HasFirstMember = true
	return a.Ledger.Write()
}
