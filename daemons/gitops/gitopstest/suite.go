package gitopstest

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// Backend is a cluster that a test can also change as another client.
type Backend interface {
	gitops.Cluster
	// Put creates or changes an object as another client.
	Put(id gitops.ObjectID, change func(content map[string]any))
	// Live returns an object, or nil.
	Live(id gitops.ObjectID) *unstructured.Unstructured
}

var _ Backend = (*Cluster)(nil)

// RunAppliers runs the tests of gitops.Cluster. newBackend returns an empty cluster with the namespace default.
func RunAppliers(t *testing.T, newBackend func(t *testing.T) Backend) {
	for name, test := range map[string]func(*testing.T, Backend, gitops.Applier){
		"objects that differ are written":      testWrites,
		"a comparison writes nothing":          testCompare,
		"objects of other clients are refused": testForeign,
		"only the right object is deleted":     testDelete,
		"kinds that are not served are errors": testKinds,
	} {
		t.Run(name, func(t *testing.T) {
			backend := newBackend(t)
			a, err := backend.As(gitsource.Namespace, gitsource.Account)
			if err != nil {
				t.Fatal(err)
			}
			test(t, backend, a)
		})
	}
}

// newConfigMap returns a config map in a namespace with some data.
func newConfigMap(namespace, name string, data map[string]any) gitops.Object {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name, "namespace": namespace}, "data": data}}
	return gitops.Object{Unstructured: o}
}

// applyOne applies an object and returns the result.
func applyOne(t *testing.T, a gitops.Applier, o gitops.Object) gitops.Result {
	t.Helper()
	results, err := a.Apply(t.Context(), []gitops.Object{o})
	if err != nil || len(results) != 1 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	return results[0]
}

func testWrites(t *testing.T, b Backend, a gitops.Applier) {
	first := newConfigMap("default", "a", map[string]any{"x": "1", "y": "1"})
	if r := applyOne(t, a, first); r.Err != nil || r.Action != gitops.ActionCreate || r.Live == nil {
		t.Fatalf("the first result is %+v", r)
	}
	before := b.Live(first.ID())
	if r := applyOne(t, a, first); r.Err != nil || r.Action != gitops.ActionNone || r.Live == nil {
		t.Errorf("the second result is %+v", r)
	}
	if after := b.Live(first.ID()); after.GetResourceVersion() != before.GetResourceVersion() {
		t.Error("an object that does not differ was written")
	}
	b.Put(first.ID(), func(content map[string]any) {
		data, _ := content["data"].(map[string]any)
		data["x"], data["other"] = "edited", "kept"
	})
	r := applyOne(t, a, newConfigMap("default", "a", map[string]any{"x": "1"}))
	if r.Err != nil || r.Action != gitops.ActionChange || !strings.Contains(strings.Join(r.Diff, ","), "data.x") {
		t.Errorf("the third result is %+v", r)
	}
	data, _, _ := unstructured.NestedMap(b.Live(first.ID()).Object, "data")
	if data["x"] != "1" || data["y"] != nil || data["other"] != "kept" {
		t.Errorf("the data is %v", data)
	}
	// A declaration that changes without a change of the live object is written too.
	if r := applyOne(t, a, newConfigMap("default", "a", map[string]any{"x": "2"})); r.Action != gitops.ActionChange {
		t.Errorf("the fourth result is %+v", r)
	}
	if r := applyOne(t, a, newConfigMap("none", "a", nil)); r.Err == nil {
		t.Error("an object in a namespace that does not exist is applied")
	}
}

func testCompare(t *testing.T, b Backend, a gitops.Applier) {
	namespace := gitops.Object{Unstructured: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1",
		"kind": "Namespace", "metadata": map[string]any{"name": "shop"}}}}
	objects := []gitops.Object{namespace, newConfigMap("shop", "a", nil), newConfigMap("default", "b", nil),
		newConfigMap("none", "c", nil)}
	results, err := a.Compare(t.Context(), objects)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		if refused := i == 3; (r.Err != nil) != refused || !refused && r.Action != gitops.ActionCreate {
			t.Errorf("the result of %s is %+v", objects[i].ID(), r)
		}
		if b.Live(objects[i].ID()) != nil {
			t.Errorf("%s was created", objects[i].ID())
		}
	}
}

func testForeign(t *testing.T, b Backend, a gitops.Applier) {
	o := newConfigMap("default", "a", map[string]any{"x": "1"})
	b.Put(o.ID(), func(content map[string]any) { content["data"] = map[string]any{"x": "theirs"} })
	if r := applyOne(t, a, o); r.Err == nil {
		t.Errorf("it is taken over: %+v", r)
	}
	o.Adopt = true
	if r := applyOne(t, a, o); r.Err != nil || r.Action != gitops.ActionChange {
		t.Errorf("the result with Adopt is %+v", r)
	}
	o.Adopt = false
	if r := applyOne(t, a, o); r.Err != nil || r.Action != gitops.ActionNone {
		t.Errorf("the result afterwards is %+v", r)
	}
}

func testDelete(t *testing.T, b Backend, a gitops.Applier) {
	o := newConfigMap("default", "a", nil)
	applyOne(t, a, o)
	found, err := a.Find(t.Context(),
		[]gitops.ObjectID{o.ID(), {APIVersion: "v1", Kind: "ConfigMap", Namespace: "default",
			Name: "none"}})
	if err != nil || len(found) != 2 || found[0] == nil || found[1] != nil {
		t.Fatalf("%v, %v", found, err)
	}
	if err := a.Delete(t.Context(), o.ID(), "another"); err != nil || b.Live(o.ID()) == nil {
		t.Errorf("an object with another UID: %v", err)
	}
	for range 2 {
		if err := a.Delete(t.Context(), o.ID(), found[0].GetUID()); err != nil || b.Live(o.ID()) != nil {
			t.Errorf("the object: %v", err)
		}
	}
	if got, err := a.Get(t.Context(), o.ID()); err != nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}
}

func testKinds(t *testing.T, _ Backend, a gitops.Applier) {
	for kind, want := range map[schema.GroupKind]gitops.Scope{
		{Kind: "ConfigMap"}: gitops.ScopeNamespaced, {Kind: "Namespace"}: gitops.ScopeCluster,
		{Group: "apps", Kind: "Deployment"}: gitops.ScopeNamespaced, {Group: "x", Kind: "X"}: gitops.ScopeUnknown,
	} {
		if got, err := a.Scope(t.Context(), kind); err != nil || got != want {
			t.Errorf("the scope of %s is %d, %v, want %d", kind, got, err, want)
		}
	}
	unknown := gitops.ObjectID{APIVersion: "x/v1", Kind: "X", Namespace: "default", Name: "x"}
	if found, err := a.Find(t.Context(), []gitops.ObjectID{unknown}); err == nil {
		t.Errorf("an object of a kind that is not served: %v", found)
	}
	o := gitops.Object{Unstructured: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "x/v1",
		"kind":     "X",
		"metadata": map[string]any{"name": "x", "namespace": "default"}}}}
	if r := applyOne(t, a, o); r.Err == nil {
		t.Errorf("it is applied: %+v", r)
	}
}
