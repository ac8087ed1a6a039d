package sealed

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/store"
	"clusterctl/daemons/store/memory"
	"clusterctl/daemons/store/storetest"
)

var secrets = schema.GroupResource{Resource: "secrets"}

func encodedSecret(b byte, n int) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, n))
}

// encryptionDocument returns an EncryptionConfiguration for Secrets with these providers, each "secretbox NAME LETTER",
// "kms NAME ENDPOINT" or "identity".
func encryptionDocument(providers ...string) string {
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: " +
		"[secrets]\n  providers:\n"
	for _, p := range providers {
		f := strings.Fields(p)
		if len(f) == 1 {
			text += "  - identity: {}\n"
			continue
		}
		if f[0] == "kms" {
			text += fmt.Sprintf("  - kms: {apiVersion: v2, name: %s, endpoint: %q, timeout: 20s}\n", f[1], f[2])
			continue
		}
		text += fmt.Sprintf("  - %s: {keys: [{name: %s, secret: %s}]}\n", f[0], f[1], encodedSecret(f[2][0], 32))
	}
	return text
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func openStore(t *testing.T, inner store.Store, text string) *Store {
	t.Helper()
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	writeFile(t, file, text)
	s, err := Open(Config{
		Store: inner, File: file, Log: slog.New(slog.DiscardHandler),
		Prefixes: func(gr schema.GroupResource) string { return "/registry/" + gr.Resource + "/" },
		Resource: func(key string) schema.GroupResource {
			if strings.HasPrefix(key, "/registry/secrets/") || strings.HasPrefix(key, "/test/") {
				return secrets
			}
			return schema.GroupResource{}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// providerKinds returns all kinds of providers, with the prefixes of their values.
func providerKinds(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{
		"secretbox one A": "k8s:enc:secretbox:v1:one:", "aesgcm one A": "k8s:enc:aesgcm:v1:one:",
		"aescbc one A":                         "k8s:enc:aescbc:v1:one:",
		"kms one " + startPlugin(t).Endpoint(): "k8s:enc:kms:v2:one:",
	}
}

func newInnerStore(t *testing.T) *memory.Store {
	m := memory.New()
	t.Cleanup(m.Close)
	return m
}

func TestEncryptedStoreBehavesAsAStore(t *testing.T) {
	for provider := range providerKinds(t) {
		t.Run(strings.Fields(provider)[0], func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) store.Store {
				return openStore(t, newInnerStore(t),
					encryptionDocument(provider))
			})
		})
	}
}

func mustPut(t *testing.T, s store.Store, key, value string, revision int64) int64 {
	t.Helper()
	r, err := s.Commit(
		context.Background(),
		store.Txn{
			Guards: []store.Guard{{Key: key, Revision: revision}},
			Puts:   []store.Put{{Key: key, Value: []byte(value)}},
		},
	)
	if err != nil || !r.Done {
		t.Fatalf("put %s: %+v %v", key, r, err)
	}
	return r.Revision
}

func mustGet(t *testing.T, s store.Store, key string) string {
	t.Helper()
	kv, err := s.Get(context.Background(), key)
	if err != nil || kv == nil {
		t.Fatalf("get %s: %v %v", key, kv, err)
	}
	return string(kv.Value)
}

func TestOnlyConfiguredResourcesAreEncrypted(t *testing.T) {
	for provider, prefix := range providerKinds(t) {
		m := newInnerStore(t)
		s := openStore(t, m, encryptionDocument(provider))
		for _, value := range []string{"", "x", `{"kind":"Secret"}`, strings.Repeat("long", 1000)} {
			key := fmt.Sprintf("/registry/secrets/a/%d", len(value))
			mustPut(t, s, key, value, 0)
			if raw := mustGet(t, m, key); !strings.HasPrefix(raw, prefix) ||
				value != "" && strings.Contains(raw, value[:1]+value) {
				t.Errorf("%s stores %q", provider, raw)
			}
			if plain := mustGet(t, s, key); plain != value {
				t.Errorf("%s gives back %q for %q", provider, plain, value)
			}
		}
		mustPut(t, s, "/registry/configmaps/a/b", "open", 0)
		if raw := mustGet(t, m, "/registry/configmaps/a/b"); raw != "open" {
			t.Errorf("what no rule names is stored as %q", raw)
		}
	}
}

func TestTamperedValuesDoNotDecrypt(t *testing.T) {
	for provider := range providerKinds(t) {
		if strings.HasPrefix(provider, "aescbc") {
			continue // it does not detect changed data
		}
		m := newInnerStore(t)
		s := openStore(t, m, encryptionDocument(provider))
		mustPut(t, s, "/registry/secrets/a/b", "value", 0)
		raw := []byte(mustGet(t, m, "/registry/secrets/a/b"))
		raw[len(raw)-1] ^= 1
		mustPut(t, m, "/registry/secrets/a/c", string(raw), 0)
		if _, err := s.Get(context.Background(), "/registry/secrets/a/c"); err == nil {
			t.Errorf("%s opens what was changed", provider)
		}
		raw[len(raw)-1] ^= 1
		mustPut(t, m, "/registry/secrets/a/d", string(raw), 0)
		if _, err := s.Get(context.Background(), "/registry/secrets/a/d"); !strings.HasPrefix(provider, "secretbox") &&
			err == nil {
			t.Errorf("%s opens what was moved to another key", provider)
		}
	}
}

func TestInvalidConfigurationsAreRejected(t *testing.T) {
	with := func(provider string) string {
		return strings.Replace(encryptionDocument("identity"), "identity: {}", provider, 1)
	}
	for name, c := range map[string]struct{ text, want string }{
		"another kind": {"apiVersion: v1\nkind: Secret\n", "not an EncryptionConfiguration"},
		"unknown":      {encryptionDocument("identity") + "more: 1\n", "unknown field"},
		"nothing": {"apiVersion: apiserver.config.k8s.io/v1\nkind: " +
			"EncryptionConfiguration\n", "resources are missing"},
		"short key": {strings.Replace(encryptionDocument("secretbox a A"), encodedSecret('A', 32),
			encodedSecret('A', 16), 1), "needs 32"},
		"no base64": {strings.Replace(encryptionDocument("aesgcm a A"), encodedSecret('A', 32), "_", 1), "not base64"},
		"kms v1": {with("kms: {apiVersion: v1, name: a, endpoint: " +
			"'unix:///a'}"), "v1 of the KMS API is not spoken here"},
		"kms v?":       {with("kms: {name: a, endpoint: 'unix:///a'}"), "v1 of the KMS API is not spoken here"},
		"kms v3":       {with("kms: {apiVersion: v3, name: a, endpoint: 'unix:///a'}"), `"v3" is not known`},
		"kms name":     {with("kms: {apiVersion: v2, name: 'a:b', endpoint: 'unix:///a'}"), "not the name of a plugin"},
		"kms endpoint": {with("kms: {apiVersion: v2, name: a, endpoint: 'https://a'}"), "not a unix socket"},
		"kms timeout":  {with("kms: {apiVersion: v2, name: a, endpoint: 'unix:///a', timeout: -1s}"), "not positive"},
		"kms cache": {with("kms: {apiVersion: v2, name: a, endpoint: 'unix:///a', cachesize: " +
			"1}"), "cachesize means nothing"},
		"kms twice": {encryptionDocument("kms a unix:///a", "kms a unix:///b"), "two plugins have this name"},
		"two in one": {strings.Replace(encryptionDocument("identity"), "identity: {}", "{identity: {}, secretbox: "+
			"{keys: "+
			"[]}}", 1), "exactly one"},
		"wildcard": {strings.Replace(encryptionDocument("identity"), "[secrets]", "['*']", 1), "not a resource"},
	} {
		if _, err := parseRules([]byte(c.text), &pluginPool{log: slog.New(slog.DiscardHandler)}); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestFirstMatchingRuleApplies(t *testing.T) {
	r, err := parseRules([]byte(`
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- {resources: [configmaps], providers: [{identity: {}}]}
- {resources: ["*.", deployments.apps], providers: [{secretbox: {keys: [{name: core, secret: `+encodedSecret('A', 32)+`}]}}]}
- {resources: ["*.apps"], providers: [{aesgcm: {keys: [{name: apps, secret: `+encodedSecret('B', 32)+`}]}}]}
- {resources: ["*.*"], providers: [{aescbc: {keys: [{name: all, secret: `+encodedSecret('C', 32)+`}]}}]}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	for gr, want := range map[string]string{"configmaps": "", "secrets": "core", "deployments.apps": "core",
		"daemonsets.apps": "apps", "jobs.batch": "all"} {
		got := ""
		if w := r.writer(schema.ParseGroupResource(gr)); w != nil {
			got = strings.Split(w.prefix, ":")[4]
		}
		if got != want {
			t.Errorf("%s is written with key %q, want %q", gr, got, want)
		}
	}
}

// reloadAndRewrite makes the store read its file again and rewrite values, and returns when that is done.
func reloadAndRewrite(t *testing.T, s *Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, func() []schema.GroupResource { return []schema.GroupResource{secrets} }) }()
	for start := time.Now(); s.CheckRewritten() != nil; {
		if time.Since(start) > 10*time.Second {
			t.Fatal(s.CheckRewritten())
		}
		<-time.After(time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestKeyRotationRewritesValues(t *testing.T) {
	m := newInnerStore(t)
	first := mustPut(t, m, "/registry/secrets/a/plain", "plain", 0) // written before encryption
	s := openStore(t, m, encryptionDocument("identity", "secretbox one A"))
	reloadAndRewrite(t, s)
	if kv, _ := m.Get(context.Background(), "/registry/secrets/a/plain"); kv.Revision != first {
		t.Fatal("an up-to-date value was written again")
	}
	three := startPlugin(t).Endpoint()
	for _, c := range []struct {
		providers []string
		prefix    string
	}{
		{[]string{"secretbox one A", "identity"}, "k8s:enc:secretbox:v1:one:"},
		{[]string{"secretbox one A", "aesgcm two B", "identity"}, "k8s:enc:secretbox:v1:one:"},
		{[]string{"aesgcm two B", "secretbox one A", "identity"}, "k8s:enc:aesgcm:v1:two:"},
		{[]string{"aesgcm two B"}, "k8s:enc:aesgcm:v1:two:"},
		{[]string{"aesgcm two B", "kms three " + three}, "k8s:enc:aesgcm:v1:two:"},
		{[]string{"kms three " + three, "aesgcm two B"}, "k8s:enc:kms:v2:three:"},
		{[]string{"kms three " + three}, "k8s:enc:kms:v2:three:"},
		{[]string{"aesgcm two B", "kms three " + three}, "k8s:enc:aesgcm:v1:two:"},
		{[]string{"identity", "aesgcm two B"}, "plain"},
	} {
		writeFile(t, s.File, encryptionDocument(c.providers...))
		reloadAndRewrite(t, s)
		if raw := mustGet(t, m, "/registry/secrets/a/plain"); !strings.HasPrefix(raw, c.prefix) {
			t.Errorf("with %v it is stored as %.40q", c.providers, raw)
		}
		if plain := mustGet(t, s, "/registry/secrets/a/plain"); plain != "plain" {
			t.Errorf("with %v it reads %q", c.providers, plain)
		}
	}
}

func TestInvalidFilesKeepTheFormerKeys(t *testing.T) {
	s := openStore(t, newInnerStore(t), encryptionDocument("secretbox one A"))
	writeFile(t, s.File, "nonsense")
	if err := s.Reload(); err == nil {
		t.Error("a file without sense is taken")
	}
	mustPut(t, s, "/registry/secrets/a/b", "value", 0)
	if mustGet(t, s, "/registry/secrets/a/b") != "value" {
		t.Error("the former keys are gone")
	}
}

func TestWatchesRestartWhenAMissingKeyIsAdded(t *testing.T) {
	m := newInnerStore(t)
	other := openStore(t, m, encryptionDocument("aesgcm two B"))
	s := openStore(t, m, encryptionDocument("secretbox one A"))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	batches := storetest.Watch(ctx, s, "/registry/", 1)
	mustPut(t, other, "/registry/secrets/a/b", "value", 0)
	if b := <-batches; len(b.Events) != 1 || b.Events[0].Value != nil ||
		!strings.Contains(fmt.Sprint(b.Events[0].Err), "Key: /registry/secrets/a/b") {
		t.Fatalf("without its key it is seen as %+v", b)
	}
	writeFile(t, s.File, encryptionDocument("secretbox one A", "aesgcm two B"))
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	for b := range batches {
		if b.Err != nil && strings.Contains(b.Err.Error(), store.ErrCompacted.Error()) {
			return
		}
	}
	t.Error("the watch continues without the missed events")
}
