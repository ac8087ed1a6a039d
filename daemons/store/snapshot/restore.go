package snapshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"

	"clusterctl/daemons/config/store"
)

// Restore creates the data of a member of a new store in Data/member, from a snapshot. Revisions continue far above
// those that clients may have seen since the snapshot, and all earlier ones are compacted. So all watches list again.
// The directory must not have a member's data. Restore removes the remains of an earlier attempt.
func Restore(q store.Request) error {
	member := filepath.Join(q.Data, "member")
	if _, err := os.Lstat(member); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("create a member in %s: it already contains a member's data: "+
			"%w", q.Data, errors.Join(err, os.ErrExist))
	}
	if err := os.MkdirAll(q.Data, 0o700); err != nil {
		return err
	}
	half := filepath.Join(q.Data, ".restoring")
	if err := os.RemoveAll(half); err != nil {
		return fmt.Errorf("clean up after an earlier attempt: %w", err)
	}
	info, err := os.Stat(q.File)
	if err != nil {
		return err
	}
	if err := checkRoom(q.Data, info.Size()); err != nil {
		return err
	}
	err = snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: q.File, Name: q.Member, OutputDataDir: half, PeerURLs: []string{q.PeerURL},
		InitialCluster: q.InitialCluster, InitialClusterToken: q.Token, RevisionBump: q.RevisionBump,
		MarkCompacted: q.RevisionBump > 0,
	})
	if err != nil {
		return fmt.Errorf("make a member of %s: %w", q.File, err)
	}
	if err := os.Rename(filepath.Join(half, "member"), member); err != nil {
		return err
	}
	_ = os.RemoveAll(half) // it is empty
	return syncDir(q.Data)
}

// FromData creates a snapshot from the data of a stopped member, including its log. It only reads the member's data. It
// starts a copy as the only member of a store, which serves no clients.
func FromData(ctx context.Context, data, file string) error {
	work := file + ".work"
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	size, err := folderSize(filepath.Join(data, "member"))
	if err != nil {
		return fmt.Errorf("read the data in %s: %w", data, err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := checkRoom(filepath.Dir(file), 2*size); err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(work, "data", "member"), os.DirFS(filepath.Join(data, "member"))); err != nil {
		return fmt.Errorf("copy the data in %s: %w", data, err)
	}
	if err := commitAll(filepath.Join(work, "data", "member", "wal")); err != nil {
		return fmt.Errorf("read the log in %s: %w", data, err)
	}
	server, err := startSingleMember(filepath.Join(work, "data"), work)
	if err != nil {
		return fmt.Errorf("start a copy of the data in %s: %w", data, err)
	}
	defer server.Close()
	select {
	case <-server.Server.ReadyNotify():
	case err := <-server.Err():
		return fmt.Errorf("start a copy of the data in %s: %w", data, err)
	case <-ctx.Done():
		return fmt.Errorf("start a copy of the data in %s: %w", data, ctx.Err())
	}
	return writeSnapshot(server, file)
}

// commitAll marks all entries of a log as committed. A member may not know yet that its last entries are committed.
// Started alone, it would drop them, and so lose writes that clients know to have succeeded. An entry that was in fact
// not committed is a write whose outcome no client knows.
func commitAll(dir string) error {
	log := zap.NewNop()
	for repaired := false; ; repaired = true {
		snapshots, err := wal.ValidSnapshotEntries(log, dir)
		if err != nil {
			return err
		}
		if len(snapshots) == 0 {
			return errors.New("it does not say where it begins")
		}
		w, err := wal.Open(log, dir, snapshots[len(snapshots)-1])
		if err != nil {
			return err
		}
		_, state, entries, err := w.ReadAll()
		if errors.Is(err, io.ErrUnexpectedEOF) && !repaired && w.Close() == nil &&
			wal.Repair(log, dir) { // a power cut during a write
			continue
		}
		if err == nil && len(entries) > 0 {
			last := entries[len(entries)-1]
			state.Commit, state.Term = new(last.GetIndex()), new(max(state.GetTerm(), last.GetTerm()))
			err = w.Save(state, nil)
		}
		return errors.Join(err, w.Close())
	}
}

// startSingleMember starts a member on data, as the only one, with sockets in a folder that other users cannot enter.
func startSingleMember(data, work string) (*embed.Etcd, error) {
	c := embed.NewConfig()
	c.Name, c.Dir, c.ForceNewCluster, c.EnableGRPCGateway = "restore", data, true, false
	c.LogLevel, c.LogOutputs = "panic", []string{"stderr"}
	c.QuotaBackendBytes = 100 << 30 // the configured quota does not matter, because nothing is written
	if err := os.Chmod(work, 0o700); err != nil {
		return nil, err
	}
	// Paths of sockets have a small maximum length, so change to the folder and use relative ones.
	if err := os.Chdir(work); err != nil {
		return nil, err
	}
	c.ListenClientUrls = []url.URL{{Scheme: "unix", Host: "client"}}
	c.ListenPeerUrls = []url.URL{{Scheme: "unix", Host: "peer"}}
	c.AdvertiseClientUrls, c.AdvertisePeerUrls = c.ListenClientUrls, []url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	return embed.StartEtcd(c)
}

// writeSnapshot writes the database followed by its hash, as the store's own snapshot stream does.
func writeSnapshot(server *embed.Etcd, file string) error {
	partial := file + partialSuffix
	defer func() { _ = os.Remove(partial) }() // after the rename there is nothing to remove
	f, err := os.OpenFile(partial, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	s := server.Server.Backend().Snapshot()
	sum := sha256.New()
	_, err = s.WriteTo(io.MultiWriter(f, sum))
	_ = s.Close()
	if err == nil {
		_, err = f.Write(sum.Sum(nil))
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	if _, err := Check(partial); err != nil {
		return err
	}
	if err := os.Rename(partial, file); err != nil {
		return err
	}
	return syncDir(filepath.Dir(file))
}

func folderSize(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return bytes, err
}

// Describe describes a snapshot file without a record. Its time is the file's modification time.
func Describe(file string) (store.Snapshot, error) {
	s, err := Check(file)
	if err != nil {
		return s, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return s, err
	}
	s.Name, s.Taken = filepath.Base(file), info.ModTime().UTC().Truncate(time.Second)
	return s, nil
}
