package kms

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"clusterctl/tests/programs/kmsplugin/kmstest"
)

// testClock is a clock that tests advance.
type testClock struct{ ahead atomic.Int64 }

func (c *testClock) now() time.Time          { return time.Unix(1e9, c.ahead.Load()) }
func (c *testClock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

// callTimeout is for calls that are answered, because the machine may be slow.
const callTimeout = 20 * time.Second

func newTestPlugin(t *testing.T, r *kmstest.Plugin, c *testClock, timeout time.Duration) *Plugin {
	t.Helper()
	p, err := New(
		Config{Name: "test", Endpoint: r.Endpoint(), Timeout: timeout, Log: slog.New(slog.DiscardHandler), Now: c.now},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func mustCheck(t *testing.T, p *Plugin) Changes {
	t.Helper()
	found, err := p.Check(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func mustSeal(t *testing.T, p *Plugin, where, plain string) []byte {
	t.Helper()
	stored, err := p.Seal([]byte(where), []byte(plain))
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

func mustOpen(t *testing.T, p *Plugin, where string, stored []byte, want string) {
	t.Helper()
	plain, err := p.Open(context.Background(), []byte(where), stored)
	if err != nil || string(plain) != want {
		t.Fatalf("opened as %q, %v, want %q", plain, err, want)
	}
}

func TestValuesShareOnePluginCall(t *testing.T) {
	r := kmstest.New(t)
	r.Start(t)
	p := newTestPlugin(t, r, &testClock{}, callTimeout)
	if !mustCheck(t, p).KeyChanged || mustCheck(t, p).KeyChanged {
		t.Error("a first look finds no key, or a second one another")
	}
	var all [][]byte
	seen := map[string]bool{}
	for range 100 {
		stored := mustSeal(t, p, "/a", "the same")
		seen[string(stored)] = true
		all = append(all, stored)
	}
	if len(seen) != 100 {
		t.Error("two values are stored alike")
	}
	other := newTestPlugin(t, r, &testClock{}, callTimeout) // a second API server, which calls the plugin once
	var readers sync.WaitGroup
	for _, stored := range all {
		readers.Go(func() {
			for _, p := range []*Plugin{p, other} {
				if plain, err := p.Open(context.Background(), []byte("/a"), stored); err != nil ||
					string(plain) != "the same" {
					t.Errorf("opened as %q, %v", plain, err)
				}
			}
		})
	}
	readers.Wait()
	if e, d := r.Count("Encrypt"), r.Count("Decrypt"); e != 1 || d != 1 {
		t.Errorf("the plugin was asked %d times to encrypt and %d times to decrypt", e, d)
	}
}

func TestTamperedValuesAreNotOpened(t *testing.T) {
	r := kmstest.New(t)
	r.Start(t)
	p := newTestPlugin(t, r, &testClock{}, callTimeout)
	mustCheck(t, p)
	stored := mustSeal(t, p, "/a", "value")
	mustOpen(t, p, "/a", stored, "value")
	if _, err := p.Open(context.Background(), []byte("/b"), stored); err == nil || errors.Is(err, ErrPlugin) {
		t.Errorf("a value that was moved: %v", err)
	}
	for i := range stored {
		bad := append([]byte(nil), stored...)
		bad[i] ^= 1
		if plain, err := p.Open(context.Background(), []byte("/a"), bad); err == nil {
			t.Errorf("opened as %q with byte %d changed", plain, i)
		}
	}
}

func TestPluginKeyChangeMakesOldValuesStale(t *testing.T) {
	r := kmstest.New(t)
	r.Start(t)
	p := newTestPlugin(t, r, &testClock{}, callTimeout)
	mustCheck(t, p)
	before := mustSeal(t, p, "/a", "was")
	if p.Stale(before) || p.KeyID() != "one" {
		t.Errorf("written with %q, stale: %v", p.KeyID(), p.Stale(before))
	}
	r.Rotate("two")
	if p.Stale(before) || !mustCheck(t, p).KeyChanged || p.KeyID() != "two" {
		t.Errorf("after the rotation it writes with %q", p.KeyID())
	}
	after := mustSeal(t, p, "/a", "is")
	if !p.Stale(before) || p.Stale(after) || !p.Stale([]byte("nonsense")) {
		t.Error("what is stale is not what another key has written")
	}
	fresh := newTestPlugin(t, r, &testClock{}, callTimeout)
	mustOpen(t, fresh, "/a", before, "was")
	mustOpen(t, fresh, "/a", after, "is")
}

func TestUnavailablePluginLimitsWritesOnly(t *testing.T) {
	r, c := kmstest.New(t), &testClock{}
	stop := r.Start(t)
	p := newTestPlugin(t, r, c, callTimeout)
	mustCheck(t, p)
	stored := mustSeal(t, p, "/a", "kept")
	stop()
	p.config.Timeout = 50 * time.Millisecond // the plugin no longer answers
	if _, err := p.Check(context.Background()); !errors.Is(err, ErrPlugin) ||
		!strings.Contains(err.Error(), `KMS plugin "test" at unix://`) {
		t.Errorf("a plugin that is away: %v", err)
	}
	if p.Health() == nil || !p.Due().Before(c.now().Add(maxRetryInterval)) {
		t.Errorf("its health is %v, and it is looked at again at %s", p.Health(), p.Due())
	}
	mustSeal(t, p, "/a", "soon")
	c.advance(writeLifetime + time.Second)
	if _, err := p.Seal([]byte("/a"), []byte("late")); err == nil ||
		!strings.Contains(err.Error(), `KMS plugin "test"`) {
		t.Errorf("written with a key that may be the plugin's no longer: %v", err)
	}
	c.advance(48 * time.Hour)
	mustOpen(t, p, "/a", stored, "kept")
	if _, err := newTestPlugin(t, r, c, 50*time.Millisecond).Open(context.Background(), []byte("/a"),
		stored); !errors.Is(err, ErrPlugin) {
		t.Errorf("read without a seed: %v", err)
	}
	p.config.Timeout = callTimeout
	r.Start(t)
	mustCheck(t, p)
	mustSeal(t, p, "/a", "again")
	if p.Health() != nil || r.Count("Encrypt") != 1 {
		t.Errorf("after it is back: %v, asked %d times to encrypt", p.Health(), r.Count("Encrypt"))
	}
}

func TestFailedUnwrapsAreRetriedLater(t *testing.T) {
	r, c := kmstest.New(t), &testClock{}
	r.Start(t)
	p := newTestPlugin(t, r, c, callTimeout)
	mustCheck(t, p)
	stored := mustSeal(t, p, "/a", "value")
	other := newTestPlugin(t, r, c, callTimeout)
	mustCheck(t, other)
	r.Fail(errors.New("the vault is sealed"))
	for range 10 {
		if _, err := other.Open(context.Background(), []byte("/a"), stored); !errors.Is(err, ErrPlugin) ||
			!strings.Contains(err.Error(), "the vault is sealed") {
			t.Fatal(err)
		}
	}
	if n := r.Count("Decrypt"); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
	if _, err := other.Check(context.Background()); err == nil ||
		!strings.Contains(err.Error(), "the vault is sealed") {
		t.Errorf("a plugin that says that it is not well: %v", err)
	}
	r.Fail(nil)
	if found := mustCheck(t, other); !found.SeedOpened || found.KeyChanged {
		t.Errorf("it finds %+v", found)
	}
	mustOpen(t, other, "/a", stored, "value")
}

func TestResponsesBeyondLimitsAreRejected(t *testing.T) {
	for name, c := range map[string]struct {
		key, health, want string
	}{
		"no key":        {"", "", "key_id is empty"},
		"a long key":    {strings.Repeat("k", 1025), "", "1024 are allowed"},
		"not well":      {"one", "burning", "burning"},
		"a change once": {"flips", "", "says that its key is"},
	} {
		r := kmstest.New(t)
		r.Rotate(c.key)
		if c.key == "flips" {
			var n atomic.Int64
			r.Server.Key = func() string { return strings.Repeat("k", int(n.Add(1))) }
		}
		r.SetHealth(c.health)
		r.Start(t)
		p := newTestPlugin(t, r, &testClock{}, callTimeout)
		if _, err := p.Check(context.Background()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := p.Seal(nil, nil); err == nil && name != "not well" {
			t.Errorf("%s: it is written with", name)
		}
	}
	for _, endpoint := range []string{"", "http://x/y", "unix://", "/run/a.sock", "unix:///", "unix:\x00"} {
		if _, err := New(Config{Endpoint: endpoint}); err == nil || !strings.Contains(err.Error(), "unix:///path") {
			t.Errorf("endpoint %q: %v", endpoint, err)
		}
	}
	long := map[string][]byte{"a.example.com": make([]byte, maxAnnotations)}
	for name, w := range map[string]wrapped{
		"no source": {KeyID: "a"}, "a long source": {KeyID: "a", EncryptedDEKSource: make([]byte, maxWrapped+1)},
		"a type":       {KeyID: "a", EncryptedDEKSource: []byte("x"), EncryptedDEKSourceType: 7},
		"much to note": {KeyID: "a", EncryptedDEKSource: []byte("x"), Annotations: long},
		"a note without a domain": {KeyID: "a", EncryptedDEKSource: []byte("x"),
			Annotations: map[string][]byte{"note": nil}},
	} {
		if checkWrapped(w) == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestCancelledCallersDoNotFailOthers(t *testing.T) {
	r := kmstest.New(t)
	r.Start(t)
	p := newTestPlugin(t, r, &testClock{}, callTimeout)
	mustCheck(t, p)
	stored := mustSeal(t, p, "/a", "value")
	other := newTestPlugin(t, r, &testClock{}, callTimeout)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := other.Open(cancelled, []byte("/a"), stored); !errors.Is(err, context.Canceled) ||
		errors.Is(err, ErrPlugin) {
		t.Errorf("given up: %v", err)
	}
	mustOpen(t, other, "/a", stored, "value")
}

func TestOldestSeedsAreDropped(t *testing.T) {
	var s seedCache
	first := &storedObject{KeyID: "first", EncryptedDEKSource: []byte("x")}
	kept := &storedObject{KeyID: "kept", EncryptedDEKSource: []byte("x")}
	s.addOwn(first, &keySeed{})
	s.addOwn(kept, &keySeed{})
	for i := range maxSeeds - 1 {
		s.addOwn(&storedObject{KeyID: "k", EncryptedDEKSource: []byte{1, byte(i), byte(i >> 8)}}, &keySeed{})
		if _, mine := s.getOrAdd(kept, seedID(kept), time.Now()); mine {
			t.Fatal("what is used goes")
		}
	}
	if _, mine := s.getOrAdd(first, seedID(first), time.Now()); !mine || len(s.cached) > maxSeeds {
		t.Errorf("%d seeds are remembered", len(s.cached))
	}
}
