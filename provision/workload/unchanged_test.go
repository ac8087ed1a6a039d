package workload

import (
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
)

// A run does not dry-run objects that the previous run found as declared, unless something that affects the result has
// changed since.
//
//style:long a table of changes between two runs
func TestUnchangedObjectsNeedNoDryRun(t *testing.T) {
	const n = 20
	update := func(t *testing.T, l *Live, o *unstructured.Unstructured) {
		t.Helper()
		client, err := l.client(o.GroupVersionKind(), o.GetNamespace())
		if err == nil {
			_, err = client.Update(t.Context(), o, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		between func(t *testing.T, l *Live, c *config.Cluster)
		tried   int
	}{
		"nothing": {func(*testing.T, *Live, *config.Cluster) {}, 0},
		"one is declared otherwise": {func(_ *testing.T, _ *Live, c *config.Cluster) {
			c.Objects[3].Content["data"] = map[string]any{"x": "changed"}
		}, 1},
		"one was written by hand": {func(t *testing.T, l *Live, _ *config.Cluster) {
			o := newOwnObject("v1", "ConfigMap", "default", "c003")
			o.SetUID("u")
			o.SetResourceVersion("1000")
			update(t, l, o)
		}, 1},
		"one was made anew": {func(t *testing.T, l *Live, _ *config.Cluster) {
			o := newOwnObject("v1", "ConfigMap", "default", "c003")
			o.SetUID("another")
			o.SetResourceVersion("4")
			update(t, l, o)
		}, 1},
		"the API server is another": {func(_ *testing.T, l *Live, _ *config.Cluster) {
			l.unchanged.apiBuild = func() (string, error) { return "v2", nil }
		}, n},
		"a webhook is there": {func(t *testing.T, l *Live, _ *config.Cluster) {
			hook := newItem("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "", "hook", nil)
			if _, err := l.dynamic.Resource(webhooks).Create(t.Context(), hook, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}, n},
		"the file is cut short": {func(t *testing.T, l *Live, _ *config.Cluster) {
			text, err := os.ReadFile(l.unchanged.path)
			if err == nil {
				err = os.WriteFile(l.unchanged.path, text[:len(text)/2], 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, n},
	} {
		t.Run(name, func(t *testing.T) {
			l, c, before, requested := manyObjects(n)
			path := filepath.Join(t.TempDir(), "settled.json")
			begin := func() *Live { // as in a new process
				l := liveOver(&connection{dynamic: l.dynamic, mapper: l.mapper})
				l.Remember(path)
				l.unchanged.apiBuild = func() (string, error) { return "v1", nil }
				return l
			}
			if _, _, err := begin().Plan(t.Context(), c, before); err != nil {
				t.Fatal(err)
			}
			if got := requested(); got["patch"] != n {
				t.Fatalf("the first run asked %v", got)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Fatalf("the file is %v, %v", info, err)
			}
			next := begin()
			test.between(t, next, c)
			requested()
			if _, _, err := next.Plan(t.Context(), c, before); err != nil {
				t.Fatal(err)
			}
			if got := requested(); got["patch"] != test.tried {
				t.Errorf("the next run asked %v, %d dry runs are due", got, test.tried)
			}
		})
	}
}

// The cache contains nothing of secrets. An object that was just written counts as declared.
func TestTheCacheContainsNoSecrets(t *testing.T) {
	l, c, before, requested := manyObjects(1)
	l.Remember(filepath.Join(t.TempDir(), "settled.json"))
	l.unchanged.apiBuild = func() (string, error) { return "v1", nil }
	c.Objects[0].Content["data"] = map[string]any{"x": "changed"}
	if _, err := l.Apply(t.Context(), c, before, func(plan.Object) {}); err != nil {
		t.Fatal(err)
	}
	requested()
	live := newOwnObject("v1", "Secret", "default", "s")
	live.SetUID("u")
	live.SetResourceVersion("1")
	secret := Desired{Object: newItem("v1", "Secret", "default", "s", nil)}
	l.unchanged.record(secret, live)
	custom := Desired{Object: newItem("example.com/v1", "Widget", "default", "s", nil)}
	l.unchanged.record(custom, live)
	for _, d := range []Desired{secret, custom} {
		if sum, kept := l.unchanged.current[cacheKey(d)]; kept {
			t.Errorf("of a %s is kept %q", d.Object.GetKind(), sum)
		}
	}
}
