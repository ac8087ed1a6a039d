package gitops_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

// Proves P06.
func TestTheClusterFollowsTheRepository(t *testing.T) {
	w := newWorld(t)
	first := w.repo.Commit(map[string]string{"app/a.yaml": configMap("a", "one"),
		"other/x.yaml": configMap("x", "one")})
	w.declare("platform", "path: app")
	s := w.ready("platform", "True", "", first)
	if !slices.Equal(s.Status.Inventory, []string{"v1 ConfigMap default/a"}) || s.Status.Objects != 1 ||
		s.Status.AppliedRevision != "main@sha1:"+first {
		t.Errorf("the status is %+v", s.Status)
	}
	w.wantWrites("create v1 ConfigMap default/a")
	second := w.repo.Commit(map[string]string{"app/a.yaml": configMap("a", "two"), "app/b.yml": configMap("b", "one")})
	w.ready("platform", "True", "", second)
	w.wantWrites("change v1 ConfigMap default/a", "create v1 ConfigMap default/b")
	third := w.repo.Commit(map[string]string{"app/b.yml": configMap("b", "one")})
	s = w.ready("platform", "True", "", third)
	w.wantWrites("delete v1 ConfigMap default/a")
	if !slices.Equal(s.Status.Inventory, []string{"v1 ConfigMap default/b"}) ||
		!slices.Equal(s.Status.Pruned, []string{"v1 ConfigMap default/a"}) || len(s.Status.Pruning) > 0 {
		t.Errorf("after a file was deleted, the status is %+v", s.Status)
	}
	if got := w.recorded("Pruned"); len(got) != 1 || !strings.Contains(got[0], "v1 ConfigMap default/a") {
		t.Errorf("the events about the deletion are %q", got)
	}
}

func TestABrokenCommitChangesNothingAndSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.cluster.Refuse = func(o, _ *unstructured.Unstructured) error {
		if v, _, _ := unstructured.NestedString(o.Object, "data", "value"); v == "refused" {
			return apierrors.NewBadRequest("the value is refused")
		}
		return nil
	}
	w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one"), "b.yaml": configMap("b", "one")})
	w.declare("platform", "")
	w.ready("platform", "True", "", "")
	w.cluster.Writes()
	for _, row := range []struct{ text, reason, message string }{
		{"a: b: c", "RenderFailed", "dir/c.yaml:1: "},
		{"# comment\n\nkind: ConfigMap\n", "RenderFailed", "dir/c.yaml:3: an object needs apiVersion"},
		{configMap("c", "one") + "---\n" + configMap("c", "two"), "RenderFailed",
			"dir/c.yaml:8: ConfigMap default/c is declared twice: the other is dir/c.yaml:1"},
		{configMap("c", "one", gitsource.WaveAnnotation, "early"), "RenderFailed", "is not a whole number"},
		{configMap("c", "one", gitsource.PruneAnnotation, "no"), "RenderFailed", `"no" is not "disabled"`},
		{configMap("c", "refused"), "ApplyFailed", "dir/c.yaml:1: ConfigMap default/c: the value is refused"},
	} {
		w.repo.Commit(map[string]string{"a.yaml": configMap("a", "two"), "dir/c.yaml": row.text})
		w.until(row.message, func() error {
			s := w.source("platform")
			if got := message(s); !strings.Contains(got, row.message) {
				return fmt.Errorf("the message is %q", got)
			}
			return nil
		})
		w.ready("platform", "False", row.reason, "")
	}
	w.wantWrites()
	if len(w.recorded("Warning RenderFailed")) == 0 || len(w.recorded("Warning ApplyFailed")) == 0 {
		t.Error("no events report the failures")
	}
	last := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "two")})
	w.ready("platform", "True", "", last)
}

const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
`

const namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"

func TestObjectsAreAppliedInOrder(t *testing.T) {
	w := newWorld(t)
	deployment := "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: db\n  annotations: {" +
		gitsource.WaveAnnotation + ": \"-1\"}\nspec: {replicas: 1}\n"
	commit := w.repo.Commit(map[string]string{
		"a.yaml": "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n",
		"b.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: shop}\n",
		"c.yaml": namespace, "d.yaml": definition, "e.yaml": deployment,
	})
	w.declare("platform", "")
	s := w.ready("platform", "Unknown", "Progressing", commit)
	w.until("the source waits for the first wave", func() error {
		if s = w.source("platform"); !strings.Contains(message(s), "apps/v1 Deployment default/db") {
			return fmt.Errorf("the message is %q", message(s))
		}
		return nil
	})
	w.wantWrites("create apps/v1 Deployment default/db")
	w.cluster.Put(gitops.ObjectID{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "default", Name: "db"},
		func(content map[string]any) {
			content["status"] = map[string]any{"observedGeneration": int64(1), "replicas": int64(1),
				"updatedReplicas": int64(1), "availableReplicas": int64(1)}
		})
	pod := gitops.ObjectID{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "p"}
	w.until("all objects are applied", func() error {
		if w.cluster.Live(pod) == nil {
			return errors.New("the pod does not exist")
		}
		return nil
	})
	writes := w.cluster.Writes()
	if len(writes) != 4 || slices.Index(writes, "create v1 Namespace shop") > 1 ||
		slices.Index(writes, "create apiextensions.k8s.io/v1 CustomResourceDefinition widgets.example.com") > 1 {
		t.Errorf("the order is %q", writes)
	}
	w.cluster.Put(pod, func(content map[string]any) {
		content["status"] = map[string]any{"phase": "Running",
			"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}
	})
	w.ready("platform", "True", "", commit)
}

func TestObjectsThatStayUnhealthyAreAFailure(t *testing.T) {
	w := newWorld(t)
	commit := w.repo.Commit(map[string]string{"p.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"})
	w.declare("platform", "timeout: 30s")
	s := w.ready("platform", "False", "HealthCheckFailed", commit)
	if len(s.Status.Failed) != 1 || s.Status.AppliedRevision != "main@sha1:"+commit {
		t.Errorf("the status is %+v", s.Status)
	}
	w.cluster.Put(gitops.ObjectID{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "p"},
		func(content map[string]any) {
			content["status"] = map[string]any{"phase": "Succeeded"}
		})
	if s = w.ready("platform", "True", "", commit); len(s.Status.Failed) > 0 {
		t.Errorf("the status still has %q", s.Status.Failed)
	}
}

func TestSourcesWaitForTheirDependencies(t *testing.T) {
	w := newWorld(t)
	w.repo.Commit(map[string]string{"one/p.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n",
		"two/a.yaml": configMap("a", "one")})
	w.declare("two", "path: two\ndependsOn: [{name: one}]")
	w.ready("two", "False", "DependencyNotReady", "")
	w.declare("one", "path: one")
	w.ready("one", "Unknown", "Progressing", "")
	s := w.ready("two", "False", "DependencyNotReady", "")
	if !strings.Contains(message(s), "kube-system/one") || w.value("a") != "" {
		t.Errorf("the message is %q, and a is %q", message(s), w.value("a"))
	}
	w.cluster.Put(gitops.ObjectID{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "p"},
		func(content map[string]any) {
			content["status"] = map[string]any{"phase": "Succeeded"}
		})
	w.ready("two", "True", "", "")
	w.declare("one", "path: one\ndependsOn: [{name: two}]")
	s = w.ready("one", "False", "DependencyCycle", "")
	if !strings.Contains(message(s), "kube-system/one → kube-system/two → kube-system/one") {
		t.Errorf("the message is %q", message(s))
	}
}

func TestSuspendedSourcesStayAsTheyAre(t *testing.T) {
	w := newWorld(t)
	w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")})
	w.declare("platform", "")
	w.ready("platform", "True", "", "")
	w.declare("platform", "suspend: true")
	w.until("the suspension is observed", func() error {
		if s := w.source("platform"); s.Status.ObservedGeneration != s.Generation {
			return errors.New("the generation is not observed")
		}
		return nil
	})
	w.setValue("a", "edited")
	commit := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "two")})
	w.annotate("platform", gitsource.SyncAnnotation, "now")
	w.until("the request is seen", func() error {
		if s := w.source("platform"); s.Status.HandledSync != "now" {
			return errors.New("it is not")
		}
		return nil
	})
	if got := w.value("a"); got != "edited" {
		t.Errorf("a is %q", got)
	}
	w.declare("platform", "suspend: false")
	w.ready("platform", "True", "", commit)
	w.wantValue("a", "two")
}

func TestASyncRequestDoesNotWaitForTheInterval(t *testing.T) {
	w := newWorld(t)
	w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")})
	w.declare("platform", "interval: 24h")
	w.ready("platform", "True", "", "")
	commit := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "two")})
	w.annotate("platform", gitsource.SyncAnnotation, "1")
	if s := w.ready("platform", "True", "", commit); s.Status.HandledSync != "1" {
		t.Errorf("the handled request is %q", s.Status.HandledSync)
	}
}

func TestInvalidSourcesStall(t *testing.T) {
	w := newWorld(t)
	w.declare("platform", "path: ../x")
	s := w.ready("platform", "False", "InvalidSpec", "")
	if !slices.ContainsFunc(s.Status.Conditions, func(c metav1.Condition) bool { return c.Type == "Stalled" }) {
		t.Errorf("the conditions are %+v", s.Status.Conditions)
	}
	w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")})
	w.declare("platform", "path: .")
	s = w.ready("platform", "True", "", "")
	if len(s.Status.Conditions) != 1 {
		t.Errorf("the conditions are %+v", s.Status.Conditions)
	}
}

// The controller could not decode such a source, and would ignore it.
func TestTheDefinitionRefusesTimesThatCannotBeUsed(t *testing.T) {
	w := newWorld(t)
	for _, row := range []struct{ field, value string }{
		{"interval", "1 minute"}, {"interval", ""}, {"interval", "9s"}, {"interval", "24h1s"},
		{"interval", "9999999999999999999999999h"}, {"retryInterval", "0s"}, {"retryInterval", "-1s"},
		{"retryInterval", "25h"}, {"timeout", "soon"}, {"timeout", "999ms"}, {"timeout", "25h"},
	} {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": gitsource.APIVersion,
			"kind": gitsource.Kind, "metadata": map[string]any{"name": "a", "namespace": "default"},
			"spec": map[string]any{"url": "https://git.example/a.git", row.field: row.value}}}
		_, err := w.client.Resource(resource).Namespace("default").Create(t.Context(), o,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsInvalid(err) {
			t.Errorf("%s %q: %v", row.field, row.value, err)
		}
	}
}

func TestImmutableFieldsRecreateOnlyWhereDeclared(t *testing.T) {
	w := newWorld(t)
	w.cluster.Refuse = func(o, live *unstructured.Unstructured) error {
		if live == nil {
			return nil
		}
		before, _, _ := unstructured.NestedString(live.Object, "data", "value")
		if now, _, _ := unstructured.NestedString(o.Object, "data", "value"); before != now {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, o.GetName(), field.ErrorList{
				field.Invalid(field.NewPath("data", "value"), now, "field is immutable")})
		}
		return nil
	}
	w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one"), "b.yaml": configMap("b", "one")})
	w.declare("platform", "")
	w.ready("platform", "True", "", "")
	w.repo.Commit(map[string]string{"a.yaml": configMap("a", "two"), "b.yaml": configMap("b", "one")})
	w.ready("platform", "False", "ApplyFailed", "")
	last := w.repo.Commit(map[string]string{
		"a.yaml": configMap("a", "two", gitsource.RecreateAnnotation, gitsource.Enabled),
		"b.yaml": configMap("b", "one")})
	uid := w.cluster.Live(configMapID("b")).GetUID()
	w.ready("platform", "True", "", last)
	w.wantValue("a", "two")
	if w.cluster.Live(configMapID("b")).GetUID() != uid {
		t.Error("another object was created again")
	}
}

// A controller that ends at any point leaves nothing behind that the next one does not know.
func TestAControllerThatEndsLosesNoObject(t *testing.T) {
	w := newWorld(t)
	for round := range 12 {
		files := map[string]string{"keep.yaml": configMap("keep", "one")}
		for i := range 6 {
			name := fmt.Sprintf("r%d-%d", round, i)
			files[name+".yaml"] = configMap(name, "one")
		}
		var writes atomic.Int64
		w.cluster.SetAllow(func(_, verb string, _ gitops.ObjectID) bool {
			if verb == "patch" || verb == "delete" {
				writes.Add(1)
			}
			return int(writes.Load()) <= round*2
		})
		commit := w.repo.Commit(files)
		if round == 0 {
			w.declare("platform", "retryInterval: 1s")
		} else {
			w.annotate("platform", gitsource.SyncAnnotation, fmt.Sprint(round))
		}
		w.until("the round has begun", func() error {
			s := w.source("platform")
			if strings.HasSuffix(s.Status.RenderedRevision, commit) || len(s.Status.Failed) > 0 ||
				int(writes.Load()) > round*2 {
				return nil
			}
			return errors.New("it has not")
		})
		w.stop()
		w.cluster.SetAllow(nil)
		w.stop = nil
		w.start()
		w.ready("platform", "True", "", commit)
		w.until("objects of former commits are gone", func() error {
			for r := range round {
				for i := range 6 {
					if name := fmt.Sprintf("r%d-%d", r, i); w.value(name) != "" {
						return fmt.Errorf("%s exists", name)
					}
				}
			}
			return nil
		})
		if s := w.source("platform"); len(s.Status.Inventory) != len(files) {
			t.Fatalf("the inventory is %q", s.Status.Inventory)
		}
	}
}

func TestAPreviewChangesNothing(t *testing.T) {
	w := newWorld(t)
	first := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one"), "b.yaml": configMap("b", "one"),
		"c.yaml": configMap("c", "one", gitsource.PruneAnnotation, gitsource.Disabled)})
	w.declare("platform", "interval: 24h")
	w.ready("platform", "True", "", first)
	w.cluster.Writes()
	w.setValue("x", "mine")
	second := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "two"), "new.yaml": configMap("new", "one"),
		"x.yaml": configMap("x", "one")})
	s := w.source("platform")
	c := gitops.New(gitops.Config{Client: w.client, Cluster: w.cluster, Fetcher: w.repo, Renderer: gitops.Manifests{},
		Recorder: w})
	p, err := c.Preview(t.Context(), s, "", []*gitops.Source{s})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, change := range p.Changes {
		got = append(got, change.Action+" "+change.Object+" "+strings.Join(change.Diff, ","))
	}
	slices.Sort(got)
	want := []string{"change v1 ConfigMap default/a data.value: one → two", "create v1 ConfigMap default/new ",
		"delete v1 ConfigMap default/b ", "keep v1 ConfigMap default/c ", "refused v1 ConfigMap default/x "}
	if !slices.Equal(got, want) || p.Revision != "main@sha1:"+second || p.Objects != 3 {
		t.Errorf("%s: %q, want %q", p.Revision, got, want)
	}
	w.wantWrites()
}
