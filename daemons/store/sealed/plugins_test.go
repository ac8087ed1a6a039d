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
	"clusterctl/tests/programs/kmsplugin/kmstest"
)

// startPlugin starts a KMS plugin.
func startPlugin(t *testing.T) *kmstest.Plugin {
	t.Helper()
	k := kmstest.New(t)
	k.Start(t)
	return k
}

// eventually waits until f returns nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	for start := time.Now(); ; {
		err := f()
		if err == nil {
			return
		}
		if time.Since(start) > 30*time.Second {
			t.Fatal(err)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func TestPluginKeyChangeRewritesValues(t *testing.T) {
	m, k := newInnerStore(t), startPlugin(t)
	s := openStore(t, m, encryptionDocument("kms one "+k.Endpoint()))
	mustPut(t, s, "/registry/secrets/a/b", "value", 0)
	reloadAndRewrite(t, s)
	former := mustGet(t, m, "/registry/secrets/a/b")
	k.Rotate("second")
	if _, err := s.current().plugins[0].Check(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckRewritten(); err == nil {
		t.Error("all is said to be rewritten when the plugin has another key")
	}
	s.requestRewrite()
	reloadAndRewrite(t, s)
	if raw := mustGet(t, m, "/registry/secrets/a/b"); raw == former || !strings.Contains(raw, "second") {
		t.Errorf("it is stored as %q", raw)
	}
	if n := k.Count("Encrypt"); mustGet(t, s, "/registry/secrets/a/b") != "value" || n != 2 {
		t.Errorf("it is not read, or the plugin was asked %d times to encrypt", n)
	}
}

func TestStoreWithoutPluginReadsCachedSeedsOnly(t *testing.T) {
	m, k := newInnerStore(t), startPlugin(t)
	other := openStore(t, m, encryptionDocument("kms one "+k.Endpoint()))
	mustPut(t, other, "/registry/secrets/a/b", "value", 0)
	stopped := kmstest.New(t)
	s := openStore(t, m, strings.Replace(encryptionDocument("kms one "+stopped.Endpoint(), "identity"), "20s", "500ms",
		1)) // starts without its plugin
	if err := s.PluginHealth(); err == nil || !strings.Contains(err.Error(), `KMS plugin "one" at `+stopped.Endpoint()) {
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
	mustPut(t, s, "/registry/configmaps/a/b", "open", 0)
	// Values that could not be read are delivered again when the plugin is available.
	watching, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	run, stop := context.WithCancel(ctx)
	var attending sync.WaitGroup
	attending.Go(func() { s.monitorPlugins(run) })
	defer attending.Wait()
	defer stop()
	stopped.Start(t)
	for b := range storetest.Watch(watching, s, "/registry/", 1) {
		if errors.Is(b.Err, store.ErrCompacted) {
			if plain := mustGet(t, s, "/registry/secrets/a/b"); plain != "value" {
				t.Errorf("it is read as %q", plain)
			}
			mustPut(t, s, "/registry/secrets/a/c", "v", 0)
			return
		}
	}
	t.Error("it is not reported that the missing values can be read")
}

func TestConfigurationsWithFailingPluginsAreRejected(t *testing.T) {
	m, k, late := newInnerStore(t), startPlugin(t), kmstest.New(t)
	s := openStore(t, m, encryptionDocument("kms one "+k.Endpoint()))
	before := s.current().plugins[0]
	mustPut(t, s, "/registry/secrets/a/b", "value", 0)
	writeFile(t, s.File, strings.Replace(encryptionDocument("kms two "+late.Endpoint(), "kms one "+k.Endpoint()),
		"two, endpoint: \""+late.Endpoint()+"\", timeout: 20s", "two, endpoint: \""+late.Endpoint()+"\", timeout: 1s",
		1))
	if err := s.Reload(); err == nil || !strings.Contains(err.Error(), `KMS plugin "two"`) {
		t.Errorf("it is taken: %v", err)
	}
	mustPut(t, s, "/registry/secrets/a/c", "value", 0)
	if raw := mustGet(t, m, "/registry/secrets/a/c"); !strings.HasPrefix(raw, "k8s:enc:kms:v2:one:") {
		t.Errorf("written as %q", raw)
	}
	late.Start(t)
	eventually(t, s.Reload)
	mustPut(t, s, "/registry/secrets/a/d", "value", 0)
	if raw := mustGet(t, m, "/registry/secrets/a/d"); !strings.HasPrefix(raw, "k8s:enc:kms:v2:two:") ||
		mustGet(t, s, "/registry/secrets/a/b") != "value" {
		t.Errorf("written as %q", raw)
	}
	if p := s.current().plugins; len(p) != 2 || p[1] != before || k.Count("Encrypt") != 1 {
		t.Error("a plugin that the former file had is another now")
	}
	writeFile(t, s.File, "nonsense") // an invalid file removes no plugin
	if err := s.Reload(); err == nil {
		t.Error("a file without sense is taken")
	}
	mustPut(t, s, "/registry/secrets/a/e", "value", 0)
	if err := s.PluginHealth(); err != nil {
		t.Error(err)
	}
}
