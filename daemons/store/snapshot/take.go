// Package snapshot takes snapshots of the store and checks them after writing. It keeps the configured number of them
// in a folder and in a bucket of an object store. It creates a member's data from a snapshot. The program etcd runs it
// on the machines. Its callers decide when to take a snapshot and which one to restore.
package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"clusterctl/daemons/config/store"
)

// Keeper manages a machine's snapshots.
type Keeper struct {
	Settings store.Settings
	Outcome  string           // file that receives the result of the last attempt; empty writes none
	Now      func() time.Time // nil means time.Now
}

func (k *Keeper) now() time.Time {
	if k.Now != nil {
		return k.Now()
	}
	return time.Now()
}

// reservedBytes is how many bytes must stay free on a disk besides a snapshot. The store may be on the same disk, and
// must not run out of space.
const reservedBytes = 512 << 20

// ErrDiskFull reports that a snapshot would fill the disk.
var ErrDiskFull = errors.New("there is no room for a snapshot")

// Take takes a snapshot of this machine's member, and removes expired ones. The leader also uploads its snapshot to the
// bucket.
func (k *Keeper) Take(
	ctx context.Context,
	client *clientv3.Client,
	reason string,
) (s store.Snapshot, notes []string, err error) {
	uploaded := time.Time{}
	defer func() { err = errors.Join(err, k.writeOutcome(s, uploaded, err)) }()
	dir := k.Settings.Directory
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return s, nil, fmt.Errorf("make the folder of snapshots: %w", err)
	}
	unlock, err := lockFolder(dir, waitFunc(ctx))
	if err != nil {
		return s, nil, err
	}
	defer unlock()
	if err := removeLeftovers(dir); err != nil {
		return s, nil, fmt.Errorf("clean up %s: %w", dir, err)
	}
	status, err := client.Status(ctx, k.Settings.Endpoint)
	if err != nil {
		return s, nil, fmt.Errorf("ask the member at %s: %w", k.Settings.Endpoint, err)
	}
	if status.IsLearner {
		return s, nil, errors.New("the member is a learner yet, and has not all of the store")
	}
	if err := checkRoom(dir, status.DbSize); err != nil {
		return s, nil, err
	}
	if s, err = k.write(ctx, client, status, reason); err != nil {
		return store.Snapshot{}, nil, err
	}
	if k.Settings.S3 != nil && status.Leader == status.Header.MemberId {
		if err := k.upload(ctx, s); err != nil {
			return s, nil, fmt.Errorf("the snapshot %s is in %s, and does not get to the bucket: %w", s.Name, dir, err)
		}
		s.In = append(s.In, Remote)
		uploaded = k.now()
	}
	if _, err := k.prune(ctx, k.Settings.Keep, k.Settings.MaxAge); err != nil {
		notes = append(notes, "older snapshots stay: "+err.Error())
	}
	return s, notes, nil
}

// waitFunc returns a function that waits a moment, or until ctx ends.
func waitFunc(ctx context.Context) func() error {
	return func() error {
		t := time.NewTimer(100 * time.Millisecond)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// checkRoom returns ErrDiskFull if a disk does not have enough space for that many bytes.
func checkRoom(dir string, bytes int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("look how full the disk of %s is: %w", dir, err)
	}
	if free := int64(fs.Bavail) * fs.Bsize; free < bytes+reservedBytes {
		return fmt.Errorf("%w: %s has %d MB free, and must have %d MB: %d for the snapshot, and %d that stay free",
			ErrDiskFull, dir, free>>20, (bytes+reservedBytes)>>20, bytes>>20, reservedBytes>>20)
	}
	return nil
}

// write streams the store to a temporary file beside the complete snapshots, checks it, and renames it.
func (k *Keeper) write(
	ctx context.Context,
	client *clientv3.Client,
	status *clientv3.StatusResponse,
	reason string,
) (store.Snapshot, error) {
	dir, taken := k.Settings.Directory, k.now().UTC().Truncate(time.Second)
	name := "etcd-" + taken.Format("20060102T150405Z") + "-" + k.Settings.Member
	for i := 2; ; i++ {
		_, recorded := os.Lstat(filepath.Join(dir, name+recordSuffix))
		if _, err := os.Lstat(filepath.Join(dir, name+databaseSuffix)); err != nil && recorded != nil {
			break
		}
		name = "etcd-" + taken.Format("20060102T150405Z") + "-" + k.Settings.Member + "-" + strconv.Itoa(i)
	}
	partial := filepath.Join(dir, "."+name+partialSuffix)
	defer func() { _ = os.Remove(partial) }() // after the rename there is nothing to remove
	if err := stream(ctx, client, partial, status.DbSize); err != nil {
		return store.Snapshot{}, fmt.Errorf("write a snapshot to %s: %w", dir, err)
	}
	s, err := Check(partial)
	if err != nil {
		return s, err
	}
	s.Name, s.Taken, s.Reason, s.Member, s.Cluster = name, taken, reason, k.Settings.Member, strconv.FormatUint(
		status.Header.ClusterId,
		16,
	)
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return s, err
	}
	s.In = []string{Local}
	if err := writeFileSynced(filepath.Join(dir, name+recordSuffix), append(text, '\n')); err != nil {
		return s, err
	}
	if err := os.Rename(partial, filepath.Join(dir, name+databaseSuffix)); err != nil {
		return s, err
	}
	return s, syncDir(dir)
}

// stream writes the store's own snapshot stream, which ends in a hash, to a file. size is the expected number of bytes.
// It checks the free space while writing, so that a filling disk is noticed in time.
func stream(ctx context.Context, client *clientv3.Client, path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	answer, err := client.SnapshotWithVersion(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Snapshot.Close() }()
	const piece = 64 << 20
	for written := int64(0); ; {
		if err := checkRoom(filepath.Dir(path), min(piece, max(size-written, 0))); err != nil {
			return err
		}
		n, err := io.CopyN(f, answer.Snapshot, piece)
		written += n
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

// writeOutcome writes the result of an attempt to the file Outcome. It preserves what the file says of the last good
// snapshot.
func (k *Keeper) writeOutcome(s store.Snapshot, uploaded time.Time, failed error) error {
	if k.Outcome == "" {
		return nil
	}
	var o store.Outcome
	if text, err := os.ReadFile(k.Outcome); err == nil {
		_ = json.Unmarshal(text, &o) // an unreadable file is replaced
	}
	o.Tried, o.Error = k.now().UTC(), ""
	if failed != nil {
		o.Error = failed.Error()
	}
	if s.Name != "" {
		o.Good = &s
	}
	if !uploaded.IsZero() {
		o.Uploaded = uploaded.UTC()
	}
	text, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(k.Outcome), 0o755); err != nil {
		return err
	}
	return writeFileSynced(k.Outcome, append(text, '\n'))
}

// List returns the snapshots of the folder and of the bucket, the newest first. A snapshot in both places is listed
// once. notes describe what could not be read.
func (k *Keeper) List(ctx context.Context) (all []store.Snapshot, notes []string, err error) {
	if all, err = listFolder(k.Settings.Directory); err != nil {
		return nil, nil, err
	}
	if k.Settings.S3 == nil {
		return all, nil, nil
	}
	far, err := k.listBucket(ctx)
	if err != nil {
		return all, []string{"the bucket cannot be listed: " + err.Error()}, nil
	}
	return mergeListings(all, far), nil, nil
}

func mergeListings(near, far []store.Snapshot) []store.Snapshot {
	at := map[string]int{}
	for i, s := range near {
		at[s.Name] = i
	}
	for _, s := range far {
		if i, ok := at[s.Name]; ok {
			near[i].In = append(near[i].In, s.In...)
		} else {
			near = append(near, s)
		}
	}
	sortNewestFirst(near)
	return near
}

// Prune removes the expired snapshots, in the folder and in the bucket, and returns them.
func (k *Keeper) Prune(ctx context.Context, keep int, maxAge time.Duration) ([]store.Snapshot, error) {
	if err := os.MkdirAll(k.Settings.Directory, 0o700); err != nil {
		return nil, err
	}
	unlock, err := lockFolder(k.Settings.Directory, waitFunc(ctx))
	if err != nil {
		return nil, err
	}
	defer unlock()
	return k.prune(ctx, keep, maxAge)
}

// Remove removes the snapshot with that name, in the folder and in the bucket. It returns the removed snapshot, if
// there was one.
func (k *Keeper) Remove(ctx context.Context, name string) (removed []store.Snapshot, err error) {
	all, err := listFolder(k.Settings.Directory)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if s.Name == name {
			if err := removeLocal(k.Settings.Directory, name); err != nil {
				return nil, err
			}
			removed = append(removed, s)
		}
	}
	if k.Settings.S3 == nil {
		return removed, nil
	}
	far, err := k.listBucket(ctx)
	if err != nil {
		return removed, err
	}
	far = slices.DeleteFunc(far, func(s store.Snapshot) bool { return s.Name != name })
	if err := k.removeRemote(ctx, far); err != nil {
		return removed, err
	}
	return mergeListings(removed, far), nil
}

func (k *Keeper) prune(ctx context.Context, keep int, maxAge time.Duration) (removed []store.Snapshot, err error) {
	all, err := listFolder(k.Settings.Directory)
	if err != nil {
		return nil, err
	}
	for _, s := range Expired(all, keep, maxAge, k.now()) {
		if err := removeLocal(k.Settings.Directory, s.Name); err != nil {
			return removed, err
		}
		removed = append(removed, s)
	}
	if k.Settings.S3 == nil {
		return removed, nil
	}
	far, err := k.listBucket(ctx)
	if err != nil {
		return removed, err
	}
	expired := Expired(far, keep, maxAge, k.now())
	if err := k.removeRemote(ctx, expired); err != nil {
		return removed, err
	}
	return mergeListings(removed, expired), nil
}
