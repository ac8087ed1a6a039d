package snapshot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"clusterctl/daemons/config/store"
)

// testMember is a store with one member over a directory.
type testMember struct {
	server   *embed.Etcd
	client   *clientv3.Client
	endpoint string
	stop     func()
}

func startMember(t *testing.T, dir string) *testMember {
	t.Helper()
	c := embed.NewConfig()
	c.Name, c.Dir, c.EnableGRPCGateway, c.LogLevel, c.UnsafeNoFsync = "one", dir, false, "panic", true
	at := url.URL{Scheme: "http", Host: freeAddress(t)}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{at}, []url.URL{at}
	c.ListenPeerUrls = []url.URL{{Scheme: "http", Host: freeAddress(t)}}
	c.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}
	c.InitialCluster = "one=http://127.0.0.1:1"
	server, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(server.Close)
	t.Cleanup(stop)
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(time.Minute):
		t.Fatal("etcd is not ready")
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{at.String()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return &testMember{server: server, client: client, endpoint: at.String(), stop: stop}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func (m *testMember) put(t *testing.T, key, value string) int64 {
	t.Helper()
	r, err := m.client.Put(t.Context(), key, value)
	if err != nil {
		t.Fatal(err)
	}
	return r.Header.Revision
}

func (m *testMember) keeper(t *testing.T) *Keeper {
	return &Keeper{
		Settings: store.Settings{
			Member:    "one",
			Endpoint:  m.endpoint,
			Directory: filepath.Join(t.TempDir(), "snapshots [1]"),
			Keep:      2,
		},
		Outcome: filepath.Join(t.TempDir(), "last", "outcome.json"),
	}
}

func TestCheckDescribesASnapshot(t *testing.T) {
	m := startMember(t, t.TempDir())
	m.put(t, "/registry/pods/default/a", "{}")
	m.put(t, "/registry/secrets/default/old", "k8s:enc:secretbox:v1:0:gone")
	m.put(t, "/registry/secrets/default/old", "k8s:enc:secretbox:v1:1:xyz")
	m.put(t, "/registry/example.com/widgets/default/w", "k8s:enc:kms:v2:vault:xyz")
	m.put(t, "/registry/secrets/default/deleted", "k8s:enc:aesgcm:v1:2:xyz")
	if _, err := m.client.Delete(t.Context(), "/registry/secrets/default/deleted"); err != nil {
		t.Fatal(err)
	}
	last := m.put(t, "/registry/pods/default/b", "{}")
	k := m.keeper(t)
	s, notes, err := k.Take(t.Context(), m.client, store.Scheduled)
	if err != nil || len(notes) > 0 {
		t.Fatal(err, notes)
	}
	if s.Revision != last || s.Keys != 4 || s.Size == 0 || s.SHA256 == "" || s.Cluster == "" || s.Member != "one" {
		t.Errorf("%+v: revision %d and 4 keys were there", s, last)
	}
	if got, want := fmt.Sprint(s.Encryption), "map[kms:v2:vault:[widgets.example.com] "+
		"secretbox:v1:1:[secrets]]"; got != want {
		t.Errorf("encrypted with %s, want %s", got, want)
	}
	file := filepath.Join(k.Settings.Directory, s.Name+".db")
	for path, mode := range map[string]os.FileMode{k.Settings.Directory: 0o700, file: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if text, err := os.ReadFile(k.Outcome); err != nil || !strings.Contains(string(text), s.Name) {
		t.Errorf("the outcome is %s, %v", text, err)
	}
	all, _, err := k.List(t.Context())
	if err != nil || len(all) != 1 || all[0].Name != s.Name || !slices.Equal(all[0].In, []string{Local}) {
		t.Errorf("listed %+v, %v", all, err)
	}
}

func TestDamagedSnapshotsAreRejected(t *testing.T) {
	m := startMember(t, t.TempDir())
	m.put(t, "/registry/pods/default/a", "{}")
	k := m.keeper(t)
	s, _, err := k.Take(t.Context(), m.client, store.Manual)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(k.Settings.Directory, s.Name+".db"))
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func([]byte) []byte{
		"a bit":         func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"the hash":      func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"half of it":    func(b []byte) []byte { return b[:len(b)/2] },
		"empty":         func([]byte) []byte { return nil },
		"no hash":       func(b []byte) []byte { return b[:len(b)-32] },
		"something":     func([]byte) []byte { return []byte("something") },
		"only its tail": func(b []byte) []byte { return b[len(b)-32:] },
	} {
		file := filepath.Join(t.TempDir(), "x.db")
		if err := os.WriteFile(file, damage(slices.Clone(whole)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Check(file); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLeftoversOfInterruptedWritesAreRemoved(t *testing.T) {
	m := startMember(t, t.TempDir())
	k := m.keeper(t)
	if err := os.MkdirAll(k.Settings.Directory, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".etcd-1.partial", "etcd-without-database.json", "etcd-brought-here.db", "mine.txt"} {
		if err := os.WriteFile(filepath.Join(k.Settings.Directory, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, _, err := k.Take(t.Context(), m.client, store.Scheduled)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(k.Settings.Directory)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{".lock", s.Name + ".db", s.Name + ".json", "etcd-brought-here.db", "mine.txt"}; !slices.Equal(
		names,
		want,
	) {
		t.Errorf("there is %q, want %q", names, want)
	}
}

// A snapshot that would fill the disk is not taken, because the store is often on the same disk.
func TestSnapshotsNeedFreeDiskSpace(t *testing.T) {
	if err := checkRoom(t.TempDir(), 1<<60); !errors.Is(err, ErrDiskFull) {
		t.Errorf("room for %d bytes: %v", int64(1)<<60, err)
	}
	if err := checkRoom(t.TempDir(), 1); err != nil {
		t.Error(err)
	}
}

func TestExpiredSelectsOldSnapshots(t *testing.T) {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	at := func(name, reason string, ago time.Duration) store.Snapshot {
		return store.Snapshot{Name: name, Reason: reason, Taken: now.Add(-ago)}
	}
	const s, h = store.Scheduled, time.Hour
	for name, c := range map[string]struct {
		all     []store.Snapshot
		keep    int
		maxAge  time.Duration
		removed string
	}{
		"none":     {nil, 1, 0, "[]"},
		"too many": {[]store.Snapshot{at("c", s, h), at("b", s, 2*h), at("a", s, 3*h)}, 2, 0, "[a]"},
		"too old": {[]store.Snapshot{at("c", s, h), at("b", s, 2*h), at("a", s, 3*h)}, 9,
			90 * time.Minute, "[b a]"},
		"the last one is too old": {[]store.Snapshot{at("a", s, 99*h)}, 9, h, "[]"},
		"of each kind": {[]store.Snapshot{at("d", "before x", h), at("c", s, 2*h),
			at("b", "before y", 3*h), at("a", s, 4*h)}, 1, 0, "[b a]"},
		"by hand: never": {[]store.Snapshot{at("c", s, h), at("b", store.Manual, 9*h),
			at("a", store.Manual, 10*h)}, 1, h, "[]"},
		"the newest was made by me": {[]store.Snapshot{at("b", store.Manual, h), at("a", s, 2*h)}, 1, 0, "[]"},
	} {
		names := []string{}
		for _, g := range Expired(c.all, c.keep, c.maxAge, now) {
			names = append(names, g.Name)
		}
		if fmt.Sprint(names) != c.removed {
			t.Errorf("%s: %v goes, want %s", name, names, c.removed)
		}
	}
}

func TestTakeRemovesExpiredSnapshots(t *testing.T) {
	m := startMember(t, t.TempDir())
	k := m.keeper(t)
	now := time.Now()
	k.Now = func() time.Time { now = now.Add(time.Minute); return now }
	var last string
	for range 4 {
		s, _, err := k.Take(t.Context(), m.client, store.Scheduled)
		if err != nil {
			t.Fatal(err)
		}
		last = s.Name
	}
	all, _, err := k.List(t.Context())
	if err != nil || len(all) != 2 || all[0].Name != last {
		t.Errorf("kept %+v, %v", all, err)
	}
}

// Revisions that clients saw after the snapshot are lost. Watches from such a revision fail, so that their clients list
// again.
func TestRestoredRevisionsExceedAllEarlierOnes(t *testing.T) {
	m := startMember(t, t.TempDir())
	m.put(t, "/a", "kept")
	k := m.keeper(t)
	s, _, err := k.Take(t.Context(), m.client, store.Manual)
	if err != nil {
		t.Fatal(err)
	}
	seen := m.put(t, "/a", "lost")
	m.stop()

	dir := t.TempDir()
	q := store.Request{
		File:           filepath.Join(k.Settings.Directory, s.Name+".db"),
		Data:           dir,
		Member:         "one",
		PeerURL:        "http://127.0.0.1:1",
		InitialCluster: "one=http://127.0.0.1:1",
		Token:          "another",
		RevisionBump:   1_000_000,
	}
	if err := os.MkdirAll(filepath.Join(dir, ".restoring", "member", "wal"), 0o700); err != nil {
		// of an interrupted attempt
		t.Fatal(err)
	}
	if err := Restore(q); err != nil {
		t.Fatal(err)
	}
	if err := Restore(q); !errors.Is(err, os.ErrExist) {
		t.Fatalf("over data that is there: %v", err)
	}
	again := startMember(t, dir)
	got, err := again.client.Get(t.Context(), "/a")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "kept" {
		t.Fatalf("restored %v, %v", got, err)
	}
	if got.Header.Revision < s.Revision+1_000_000 {
		t.Errorf("revision %d, and %d was seen", got.Header.Revision, seen)
	}
	if got.Header.ClusterId == uint64(m.server.Server.Cluster().ID()) {
		t.Error("it is the same store by its id, so that former members would join it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if r := <-again.client.Watch(ctx, "/a", clientv3.WithRev(seen+1)); !errors.Is(r.Err(), rpctypes.ErrCompacted) {
		t.Errorf("a watch from revision %d gets %v, %v", seen+1, r.Events, r.Err())
	}
	// A snapshot of the restored store works like any other.
	if _, _, err := again.keeper(t).Take(t.Context(), again.client, store.Manual); err != nil {
		t.Error(err)
	}
}

func TestFromDataIncludesTheLastWrite(t *testing.T) {
	dir := t.TempDir()
	m := startMember(t, dir)
	for i := range 50 {
		m.put(t, fmt.Sprintf("/k%d", i), "v")
	}
	// Copy the files of a running member, as they are after a power cut.
	cut := t.TempDir()
	if err := os.CopyFS(filepath.Join(cut, "member"), os.DirFS(filepath.Join(dir, "member"))); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chdir(here) })
	file := filepath.Join(t.TempDir(), "of-data.db")
	if err := FromData(t.Context(), cut, file); err != nil {
		t.Fatal(err)
	}
	s, err := Describe(file)
	if err != nil || s.Keys != 50 {
		t.Errorf("%d keys, want 50, %v", s.Keys, err)
	}
	if _, err := os.Stat(file + ".work"); !os.IsNotExist(err) {
		t.Errorf("the copy is left: %v", err)
	}
}
