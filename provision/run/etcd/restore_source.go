package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"clusterctl/daemons/config/store"
	"clusterctl/hcl/config"
	"clusterctl/provision/host"
	"clusterctl/provision/role"
	"clusterctl/provision/run/report"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
	"clusterctl/provision/step"
)

// chooseSource chooses the machine on which the store begins, and returns it with the snapshot to restore.
func (a *Access) chooseSource(ctx context.Context, r Restore) (*session.Machine, store.Snapshot, error) {
	switch {
	case r.Member != "":
		m, err := a.reachMachine(ctx, r.Member)
		if err == nil && !m.Facts.HasEtcdData {
			err = fmt.Errorf("%s has no data of the store in %s", m.Name, role.EtcdData)
		}
		return m, store.Snapshot{}, err
	case r.File != "":
		m := a.firstMachine()
		if m == nil {
			return nil, store.Snapshot{}, errors.New("no machine that is declared to hold a member is reached")
		}
		if err := a.sendSnapshot(ctx, m, r); err != nil {
			return nil, store.Snapshot{}, fmt.Errorf("%s: send %s: %w", m.Address, r.File, err)
		}
		answer, err := a.callStore(ctx, m, databaseTimeout,
			store.Request{Op: store.Check, File: a.sourcePath(m, store.Snapshot{}, r)})
		if err != nil {
			return nil, store.Snapshot{}, err
		}
		info, err := os.Stat(r.File)
		if err != nil {
			return nil, store.Snapshot{}, err
		}
		s := answer.Snapshots[0]
		s.Taken = info.ModTime() // the machine's copy has the time of the copying
		return m, s, nil
	}
	return a.findSnapshot(ctx, r.Name)
}

// firstMachine returns the first reached machine that should hold a member according to the configuration.
func (a *Access) firstMachine() *session.Machine {
	for _, e := range role.EtcdMachines(a.Config, a.State) {
		for _, m := range a.reached() {
			if m.Name == e.Name {
				return m
			}
		}
	}
	return nil
}

// findSnapshot returns a snapshot on a machine or in the bucket: the one with this name, or the newest good one.
func (a *Access) findSnapshot(ctx context.Context, name string) (*session.Machine, store.Snapshot, error) {
	if declared := a.Config.Etcd.Snapshot; declared != nil &&
		declared.S3 != nil { // a new machine does not have the bucket's settings yet
		for _, m := range a.reached() {
			files, err := role.SnapshotFiles(a.Config, m.Name)
			if err != nil {
				return nil, store.Snapshot{}, err
			}
			var steps []step.Step
			for _, f := range files {
				steps = append(steps, f)
			}
			if err := m.Agent.Apply(ctx, steps, nil); err != nil {
				return nil, store.Snapshot{}, fmt.Errorf("%s: %w", m.Address, err)
			}
		}
	}
	all, notes, err := a.Snapshots(ctx)
	if err != nil {
		return nil, store.Snapshot{}, err
	}
	for _, n := range notes {
		a.Session.Report(report.Event{Kind: report.Note, Message: n})
	}
	tried := 0
	for _, s := range all {
		if name != "" && s.Name != name || name == "" && !isOwnSnapshot(a.State, s) {
			continue
		}
		tried++
		m, err := a.fetchSnapshot(ctx, s)
		if err == nil {
			return m, s, nil
		}
		if name != "" {
			return nil, s, err
		}
		a.Session.Report(report.Event{Kind: report.Note, Message: s.Name + " is passed over: " + err.Error()})
	}
	switch {
	case name != "":
		return nil, store.Snapshot{}, fmt.Errorf("there is no snapshot %q on the machines that are reached, nor in a "+
			"bucket; clusterctl etcd snapshot ls lists them. A file on this computer is written with its path, ./%s",
			name, name)
	case tried > 0:
		return nil, store.Snapshot{}, errors.New("no snapshot is good")
	}
	return nil, store.Snapshot{}, errors.New("there is no snapshot of this store on the machines that are reached, " +
		"nor in a bucket: write the path of a file on this computer")
}

// isOwnSnapshot reports whether a snapshot is of this store, or of a store that this one was restored from.
func isOwnSnapshot(in *state.State, s store.Snapshot) bool {
	return s.Cluster == "" || in.EtcdCluster == "" || s.Cluster == in.EtcdCluster ||
		slices.Contains(in.FormerStores, s.Cluster)
}

// fetchSnapshot returns a machine that has a snapshot and may hold a member. If only the bucket has the snapshot, it is
// downloaded to one. It checks the whole snapshot.
func (a *Access) fetchSnapshot(ctx context.Context, s store.Snapshot) (*session.Machine, error) {
	check := func(m *session.Machine) error {
		answer, err := a.callStore(ctx, m, databaseTimeout, store.Request{Op: store.Check, File: a.Path(s.Name)})
		if err == nil && answer.Snapshots[0].SHA256 != s.SHA256 {
			err = fmt.Errorf("its digest is %s, and was %s", answer.Snapshots[0].SHA256, s.SHA256)
		}
		return err
	}
	var errs []error
	for _, m := range a.reached() {
		holds := slices.ContainsFunc(role.EtcdMachines(a.Config, a.State),
			func(e config.Machine) bool { return e.Name == m.Name })
		if !slices.Contains(s.In, m.Name) || !holds {
			continue
		}
		err := check(m)
		if err == nil {
			return m, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", m.Name, err))
	}
	if m := a.firstMachine(); m != nil && slices.Contains(s.In, "s3") {
		q := a.snapshotRequest(m)
		q.Op, q.Name, q.File = store.Fetch, s.Name, a.Path(s.Name)
		if _, err := a.callStore(ctx, m, saveTimeout, q); err != nil {
			return nil, errors.Join(append(errs, err)...)
		}
		return m, check(m)
	}
	if len(errs) == 0 {
		errs = append(errs, fmt.Errorf(
			"it is on %s, which hold no member: bring it here with clusterctl ssh, and write its path",
			strings.Join(s.In, ", ")))
	}
	return nil, errors.Join(errs...)
}

// sourcePath returns the path on the machine of the data to restore from.
func (a *Access) sourcePath(m *session.Machine, s store.Snapshot, r Restore) string {
	switch {
	case r.Member != "":
		return path.Join(snapshotDirectory(a.Config), ".restore", "member.db")
	case r.File != "":
		return path.Join(host.LibraryDir, r.Digest, "snapshot.db")
	}
	return a.Path(s.Name)
}

// sendSnapshot sends a snapshot file of this computer to a machine.
func (a *Access) sendSnapshot(ctx context.Context, m *session.Machine, r Restore) error {
	f, err := os.Open(r.File)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	in, out := io.Pipe()
	go func() { // ends when the reader has read everything or has closed the pipe
		z, err := zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedFastest))
		if err == nil {
			_, err = io.Copy(z, f)
			err = errors.Join(err, z.Close())
		}
		_ = out.CloseWithError(err)
	}()
	defer func() { _ = in.Close() }()
	return m.Agent.SendPrivate(ctx, r.Digest, "snapshot.db", in)
}
