package sealed

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"clusterctl/daemons/store"
	"clusterctl/daemons/store/storetest"
	"clusterctl/tests/kmsplugin/kmstest"
)

// plugin starts a KMS plugin.
func plugin(t *testing.T) *kmstest.Plugin {
	t.Helper()
	k := kmstest.New(t)
	k.Start(t)
	return k
}

// eventually waits until f returns nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	for began := time.Now(); ; {
		err := f()
		if err == nil {
			return
		}
		if time.Since(began) > 30*time.Second {
			t.Fatal(err)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func TestAnotherKeyOfThePluginsRewritesWhatIsStored(t *testing.T) {
	m, k := inner(t), plugin(t)
	s := open(t, m, document("kms one "+k.Endpoint()))
	put(t, s, "/registry/secrets/a/b", "value", 0)
	running(t, s)
	former := get(t, m, "/registry/secrets/a/b")
	k.Rotate("second")
	if _, err := s.current().plugins[0].Look(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := s.Rewritten(); err == nil {
		t.Error("all is said to be rewritten when the plugin has another key")
	}
	s.again()
	running(t, s)
	if raw := get(t, m, "/registry/secrets/a/b"); raw == former || !strings.Contains(raw, "second") {
		t.Errorf("it is stored as %q", raw)
	}
	if n := k.Count("Encrypt"); get(t, s, "/registry/secrets/a/b") != "value" || n != 2 {
		t.Errorf("it is not read, or the plugin was asked %d times to encrypt", n)
	}
}

func TestAStoreWhosePluginIsAwayReadsWhatItKnowsAndWritesNothing(t *testing.T) {
	m, k := inner(t), plugin(t)
	other := open(t, m, document("kms one "+k.Endpoint()))
	put(t, other, "/registry/secrets/a/b", "value", 0)
	gone := kmstest.New(t)
	s := open(
		t,
		m,
		strings.Replace(document("kms one "+gone.Endpoint(), "identity"), "20s", "500ms", 1),
	) // starts without its plugin
	if err := s.Plugins(); err == nil || !strings.Contains(err.Error(), `KMS plugin "one" at `+gone.Endpoint()) {
		t.Errorf("the plugin is said to be well: %v", err)
	}
	ctx := context.Background()
	for what, err := range map[string]error{
		"write": func() error {
			_, err := s.Commit(ctx, store.Txn{Puts: []store.Put{{Key: "/registry/secrets/a/c", Value: []byte("v")}}})
			return err
		}(),
		"read": func() error { _, err := s.Get(ctx, "/registry/secrets/a/b"); return err }(),
		"list": func() error {
			kvs, err := storetest.All(ctx, s, "/registry/secrets/")
			if err != nil || len(kvs) != 1 || kvs[0].Value != nil {
				t.Errorf("listed %+v, %v", kvs, err)
				return nil
			}
			return kvs[0].Err
		}(),
	} {
		if err == nil || !strings.Contains(err.Error(), `KMS plugin "one"`) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	put(t, s, "/registry/configmaps/a/b", "open", 0)
	// Values that could not be read are delivered again when the plugin is available.
	watching, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	run, stop := context.WithCancel(ctx)
	var attending sync.WaitGroup
	attending.Go(func() { s.attend(run) })
	defer attending.Wait()
	defer stop()
	gone.Start(t)
	for b := range storetest.Watch(watching, s, "/registry/", 1) {
		if errors.Is(b.Err, store.ErrCompacted) {
			if plain := get(t, s, "/registry/secrets/a/b"); plain != "value" {
				t.Errorf("it is read as %q", plain)
			}
			put(t, s, "/registry/secrets/a/c", "v", 0)
			return
		}
	}
	t.Error("nobody is told that what was missing can be read")
}

func TestAFileWhosePluginIsNotWellIsNotTakenUntilItIs(t *testing.T) {
	m, k, late := inner(t), plugin(t), kmstest.New(t)
	s := open(t, m, document("kms one "+k.Endpoint()))
	was := s.current().plugins[0]
	put(t, s, "/registry/secrets/a/b", "value", 0)
	write(
		t,
		s.File,
		strings.Replace(
			document("kms two "+late.Endpoint(), "kms one "+k.Endpoint()),
			"two, endpoint: \""+late.Endpoint()+"\", timeout: 20s",
			"two, endpoint: \""+late.Endpoint()+"\", timeout: 1s",
			1,
		),
	)
	if err := s.Reload(); err == nil || !strings.Contains(err.Error(), `KMS plugin "two"`) {
		t.Errorf("it is taken: %v", err)
	}
	put(t, s, "/registry/secrets/a/c", "value", 0)
	if raw := get(t, m, "/registry/secrets/a/c"); !strings.HasPrefix(raw, "k8s:enc:kms:v2:one:") {
		t.Errorf("written as %q", raw)
	}
	late.Start(t)
	eventually(t, s.Reload)
	put(t, s, "/registry/secrets/a/d", "value", 0)
	if raw := get(t, m, "/registry/secrets/a/d"); !strings.HasPrefix(raw, "k8s:enc:kms:v2:two:") ||
		get(t, s, "/registry/secrets/a/b") != "value" {
		t.Errorf("written as %q", raw)
	}
	if p := s.current().plugins; len(p) != 2 || p[1] != was || k.Count("Encrypt") != 1 {
		t.Error("a plugin that the former file had is another now")
	}
	write(t, s.File, "nonsense") // an invalid file removes no plugin
	if err := s.Reload(); err == nil {
		t.Error("a file without sense is taken")
	}
	put(t, s, "/registry/secrets/a/e", "value", 0)
	if err := s.Plugins(); err != nil {
		t.Error(err)
	}
}
