package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"clusterctl/daemons/config/store"
	"clusterctl/daemons/store/snapshot"
	"clusterctl/daemons/store/upkeep"
)

// Arguments that make this program do something other than run a member: process a store.Request, or take a scheduled
// snapshot, as in `etcd snapshot SETTINGS`.
const (
	storeCommand    = "store"
	snapshotCommand = "snapshot"
)

// scheduledTimeout is how long a scheduled snapshot may take, including the upload to the bucket.
const scheduledTimeout = 30 * time.Minute

// runCommand processes a store request or takes a snapshot. It returns false if args ask for neither.
func runCommand(ctx context.Context, args []string, out io.Writer) (bool, error) {
	if len(args) != 2 || args[0] != storeCommand && args[0] != snapshotCommand {
		return false, nil
	}
	q := store.Request{Op: store.Save, Settings: args[1], Reason: store.Scheduled, Timeout: scheduledTimeout}
	if args[0] == storeCommand {
		q = store.Request{}
		if err := json.Unmarshal([]byte(args[1]), &q); err != nil {
			return true, fmt.Errorf("read the request: %w", err)
		}
	}
	if q.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.Timeout)
		defer cancel()
	}
	a, err := handleRequest(ctx, q)
	if err != nil {
		return true, err
	}
	return true, json.NewEncoder(out).Encode(a)
}

// handleRequest processes a request.
func handleRequest(ctx context.Context, q store.Request) (a store.Answer, err error) {
	switch q.Op {
	case store.Status:
		a.Members, err = upkeep.Status(ctx, q.Client, q.Endpoints)
		return a, err
	case store.Check:
		s, err := snapshot.Describe(q.File)
		a.Snapshots = []store.Snapshot{s}
		return a, err
	case store.Restore:
		return a, snapshot.Restore(q)
	case store.FromData:
		if err := snapshot.FromData(ctx, q.Data, q.File); err != nil {
			return a, err
		}
		s, err := snapshot.Describe(q.File)
		a.Snapshots = []store.Snapshot{s}
		return a, err
	case store.Save, store.List, store.Prune, store.Fetch:
		return handleSnapshots(ctx, q)
	}
	var endpoints []string
	if q.Endpoint != "" {
		endpoints = []string{q.Endpoint}
	}
	for _, e := range q.Endpoints {
		endpoints = append(endpoints, e)
	}
	err = withClient(ctx, q.Client, endpoints, func(client *clientv3.Client) (err error) {
		switch q.Op {
		case store.Defrag:
			return upkeep.Defrag(ctx, client, q.Endpoint)
		case store.Compact:
			a.Revision, err = upkeep.Compact(ctx, client, q.Revision, q.Keep)
			return err
		case store.Disarm:
			return upkeep.ClearAlarms(ctx, client)
		}
		return fmt.Errorf("%q is nothing that can be done with the store", q.Op)
	})
	return a, err
}

func withClient(ctx context.Context, c store.Client, endpoints []string, f func(*clientv3.Client) error) error {
	client, err := upkeep.Connect(ctx, c, endpoints...)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	return f(client)
}

// handleSnapshots processes a request about a machine's snapshots.
func handleSnapshots(ctx context.Context, q store.Request) (a store.Answer, err error) {
	settings, err := readSettings(q)
	if err != nil {
		return a, err
	}
	k := &snapshot.Keeper{Settings: settings, Outcome: store.LastSnapshot}
	switch q.Op {
	case store.List:
		a.Snapshots, a.Notes, err = k.List(ctx)
		return a, err
	case store.Prune:
		if q.Name != "" {
			a.Snapshots, err = k.Remove(ctx, q.Name)
			return a, err
		}
		count := settings.Keep
		if q.Keep > 0 {
			count = int(q.Keep)
		}
		a.Snapshots, err = k.Prune(ctx, count, settings.MaxAge)
		return a, err
	case store.Fetch:
		s, err := k.Fetch(ctx, q.Name, q.File)
		a.Snapshots = []store.Snapshot{s}
		return a, err
	}
	err = withClient(ctx, settings.Client, []string{settings.Endpoint}, func(client *clientv3.Client) error {
		s, notes, err := k.Take(ctx, client, q.Reason)
		a.Snapshots, a.Notes = []store.Snapshot{s}, notes
		return err
	})
	return a, err
}

// readSettings reads the snapshot settings. If snapshots are not declared on the machine, it returns those in the
// request.
func readSettings(q store.Request) (s store.Settings, err error) {
	text, err := os.ReadFile(q.Settings)
	if errors.Is(err, fs.ErrNotExist) && q.Directory != "" {
		return store.Settings{
			Member:    q.Member,
			Endpoint:  q.Endpoint,
			Client:    q.Client,
			Directory: q.Directory,
			Keep:      store.KeepUndeclared,
		}, nil
	}
	if err != nil {
		return s, fmt.Errorf("read the settings of snapshots: %w", err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("read the settings of snapshots %s: %w", q.Settings, err)
	}
	return s, nil
}
