package apply

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"clusterctl/daemons/api"
	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// tenantRights lets the accounts of the namespace team read and write that namespace only.
type tenantRights struct{}

// Authorize implements api.Authorizer.
func (tenantRights) Authorize(_ context.Context, u api.User, r api.Request) (api.Decision, string, error) {
	if strings.HasPrefix(u.Name, "system:serviceaccount:team:") && r.Resource && r.Namespace != "team" {
		return api.Deny, "it is a tenant", nil
	}
	return api.Allow, "", nil
}

// startWatching returns a cluster that watches objects.
func startWatching(t *testing.T) *backend {
	t.Helper()
	config := startServer(t, tenantRights{})
	b := &backend{New(config), t, dynamic.NewForConfigOrDie(config)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.Run(ctx, slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	for _, name := range []string{"team", "other"} {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": name}}}
		if _, err := b.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).
			Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within three minutes: %s", what)
		}
	}
}

func newTracker(t *testing.T, b *backend, namespace string) interface {
	gitops.Applier
	gitops.Tracker
} {
	t.Helper()
	a, err := b.As(namespace, gitsource.Account)
	if err != nil {
		t.Fatal(err)
	}
	return a.(*applier)
}

func TestVersionsFollowTheObjects(t *testing.T) {
	b := startWatching(t)
	a := newTracker(t, b, gitsource.Namespace)
	var objects []gitops.Object
	for _, namespace := range []string{"default", "team", "other", "kube-system", "kube-public"} { // more than wideFrom
		objects = append(objects, newConfigMap(namespace, "a"))
	}
	results, err := a.Apply(t.Context(), objects)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		id := objects[i].ID()
		version := func() string { return a.Versions([]gitops.ObjectID{id})[0] }
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		eventually(t, fmt.Sprintf("%s has the version of its creation", id), func() bool {
			return version() == gitops.VersionOf(r.Live) && version() != ""
		})
		b.Put(id, func(content map[string]any) { content["data"] = map[string]any{"x": "edited"} })
		eventually(t, fmt.Sprintf("%s has the version of its change", id), func() bool {
			return version() == gitops.VersionOf(b.Live(id))
		})
		if err := a.Delete(t.Context(), id, b.Live(id).GetUID()); err != nil {
			t.Fatal(err)
		}
		eventually(t, fmt.Sprintf("%s has no version after its deletion", id), func() bool { return version() == "" })
	}
}

// A tenant's account sees only what it may read, also while other accounts watch the same kind.
func TestTenantsShareNoVersions(t *testing.T) {
	b := startWatching(t)
	platform, tenant := newTracker(t, b, gitsource.Namespace), newTracker(t, b, "team")
	own, foreign := newConfigMap("team", "a"), newConfigMap("other", "a")
	ids := []gitops.ObjectID{own.ID(), foreign.ID()}
	if _, err := platform.Apply(t.Context(), []gitops.Object{own, foreign}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the platform knows both versions", func() bool {
		v := platform.Versions(ids)
		return v[0] != "" && v[1] != ""
	})
	eventually(t, "the tenant knows the version of its object", func() bool { return tenant.Versions(ids)[0] != "" })
	refused := watchKey{"system:serviceaccount:team:" + gitsource.Account,
		schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "other"}
	eventually(t, "the tenant's watch of another namespace is refused", func() bool {
		v := tenant.Versions(ids)
		b.watches.mu.Lock()
		defer b.watches.mu.Unlock()
		if v[1] != "" {
			t.Fatal("the tenant knows the version of an object of another namespace")
		}
		return b.watches.isDenied(refused)
	})
}

func TestWatchesAreBounded(t *testing.T) {
	w := newWatches()
	for i := range 10 * maxWatches {
		w.version(fmt.Sprint("account-", i/maxOfAccount/2), nil,
			schema.GroupVersionResource{Version: "v1", Resource: fmt.Sprint("kind-", i)},
			gitops.ObjectID{Namespace: fmt.Sprint(i), Name: "a"})
	}
	if len(w.all) > maxWatches || len(w.namespaces) > maxWatches {
		t.Errorf("%d watches of %d places", len(w.all), len(w.namespaces))
	}
}

func newConfigMap(namespace, name string) gitops.Object {
	return gitops.Object{Unstructured: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1",
		"kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": namespace},
		"data": map[string]any{"x": "1"}}}}
}
