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

// A round without changes writes neither objects nor a status.
func TestAnUnchangedSourceCausesNoWrites(t *testing.T) {
	w := newWorld(t)
	commit := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")})
	w.declare("platform", "")
	before := w.ready("platform", "True", "", commit)
	w.cluster.Writes()
	fetched := w.repo.Fetched()
	w.until("three more rounds", func() error {
		if n := w.repo.Fetched(); n < fetched+3 {
			return fmt.Errorf("%d rounds", n-fetched)
		}
		return nil
	})
	w.wantWrites()
	if after := w.source("platform"); after.ResourceVersion != before.ResourceVersion {
		t.Error("the status was written")
	}
}

// Proves P06.
func TestDriftIsRevertedOrReportedAsDeclared(t *testing.T) {
	w := newWorld(t)
	commit := w.repo.Commit(map[string]string{
		"a.yaml": configMap("a", "one"),
		"b.yaml": configMap("b", "one", gitsource.DriftAnnotation, gitsource.DriftReport),
		"c.yaml": configMap("c", "one", gitsource.DriftAnnotation, gitsource.DriftIgnore),
	})
	w.declare("platform", "")
	w.ready("platform", "True", "", commit)
	for _, name := range []string{"a", "b", "c"} {
		w.setValue(name, "edited")
	}
	w.wantValue("a", "one")
	w.until("the drift is in the status", func() error {
		if s := w.source("platform"); len(s.Status.Drifted) != 1 || !strings.Contains(s.Status.Drifted[0],
			"v1 ConfigMap default/b: data.value: edited → one") {
			return fmt.Errorf("it has %q", s.Status.Drifted)
		}
		return nil
	})
	if w.value("b") != "edited" || w.value("c") != "edited" {
		t.Errorf("b is %q, c is %q", w.value("b"), w.value("c"))
	}
	if len(w.recorded("DriftReverted")) == 0 {
		t.Error("no event reports that drift was reverted")
	}
	// A commit that changes the declaration is applied in any case, except for ignored objects.
	commit = w.repo.Commit(map[string]string{
		"a.yaml": configMap("a", "two"),
		"b.yaml": configMap("b", "two", gitsource.DriftAnnotation, gitsource.DriftReport),
		"c.yaml": configMap("c", "two", gitsource.DriftAnnotation, gitsource.DriftIgnore),
	})
	s := w.ready("platform", "True", "", commit)
	if w.value("a") != "two" || w.value("b") != "two" || w.value("c") != "edited" || len(s.Status.Drifted) > 0 {
		t.Errorf("a, b, c are %q, %q, %q, and %q have drifted", w.value("a"), w.value("b"), w.value("c"),
			s.Status.Drifted)
	}
	// Objects that are deleted are drift too.
	w.cluster.Remove(configMapID("a"))
	w.cluster.Remove(configMapID("b"))
	w.wantValue("a", "two")
	w.until("the missing object is in the status", func() error {
		if s := w.source("platform"); len(s.Status.Drifted) != 1 {
			return fmt.Errorf("it has %q", s.Status.Drifted)
		}
		return nil
	})
}

func TestDriftThatIsOnlyReportedSurvivesARestart(t *testing.T) {
	w := newWorld(t)
	commit := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")})
	w.declare("platform", "drift: report")
	w.ready("platform", "True", "", commit)
	w.setValue("a", "edited")
	w.start()
	w.until("the drift is in the status", func() error {
		if s := w.source("platform"); len(s.Status.Drifted) != 1 {
			return fmt.Errorf("it has %q", s.Status.Drifted)
		}
		return nil
	})
	if got := w.value("a"); got != "edited" {
		t.Errorf("a is %q", got)
	}
}

// Absence never deletes everything.
func TestASourceThatRendersNothingDeletesNothing(t *testing.T) {
	w := newWorld(t)
	w.repo.Commit(map[string]string{"app/a.yaml": configMap("a", "one"), "README.md": "x"})
	w.declare("platform", "path: app")
	w.ready("platform", "True", "", "")
	w.cluster.Writes()
	w.repo.Commit(map[string]string{"app/README.md": "x"})
	s := w.ready("platform", "False", "NothingRendered", "")
	if !strings.Contains(message(s), "spec.allowEmpty") {
		t.Errorf("the message is %q", message(s))
	}
	w.repo.Commit(map[string]string{"README.md": "x"}) // without the folder
	s = w.ready("platform", "False", "RenderFailed", "")
	if !strings.Contains(message(s), `no folder "app"`) {
		t.Errorf("the message is %q", message(s))
	}
	w.repo.Fail(errors.New("connection refused"))
	w.ready("platform", "False", "FetchFailed", "")
	w.repo.Fail(&gitops.ReasonError{Reason: gitops.ReasonVerification, Err: errors.New("the commit is not signed")})
	s = w.ready("platform", "False", "VerificationFailed", "")
	if !strings.Contains(message(s), "not signed") {
		t.Errorf("the message is %q", message(s))
	}
	w.declare("platform", "path: app\nverify: {secret: signers}")
	s = w.ready("platform", "False", "SecretNotReadable", "")
	if !strings.Contains(message(s), "kube-system/signers") {
		t.Errorf("the message is %q", message(s))
	}
	w.declare("platform", "path: app")
	w.repo.Fail(nil)
	w.wantWrites()
	last := w.repo.Commit(map[string]string{"app/README.md": "x"})
	w.declare("platform", "path: app\nallowEmpty: true")
	w.ready("platform", "True", "", last)
	w.wantWrites("delete v1 ConfigMap default/a")
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

func TestAnObjectThatMovesBetweenSourcesIsHandedOver(t *testing.T) {
	w := newWorld(t)
	w.repo.Commit(map[string]string{"one/a.yaml": configMap("a", "one"), "one/x.yaml": configMap("x", "one"),
		"two/b.yaml": configMap("b", "one")})
	w.declare("one", "path: one")
	w.declare("two", "path: two\ninterval: 30m")
	w.ready("one", "True", "", "")
	w.ready("two", "True", "", "")
	uid := w.cluster.Live(configMapID("a")).GetUID()
	last := w.repo.Commit(map[string]string{"one/x.yaml": configMap("x", "one"), "two/a.yaml": configMap("a", "one"),
		"two/b.yaml": configMap("b", "one")})
	w.ready("one", "True", "", last)
	s := w.ready("two", "True", "", last)
	if !slices.Contains(s.Status.Inventory, "v1 ConfigMap default/a") {
		t.Errorf("the inventory of its new source is %q", s.Status.Inventory)
	}
	w.until("the old source has released it", func() error {
		if s := w.source("one"); slices.Contains(s.Status.Inventory, "v1 ConfigMap default/a") {
			return fmt.Errorf("its inventory is %q", s.Status.Inventory)
		}
		return nil
	})
	live := w.cluster.Live(configMapID("a"))
	if live == nil || live.GetUID() != uid {
		t.Error("the object was deleted")
	} else if owner := live.GetAnnotations()[gitsource.SourceAnnotation]; owner != "kube-system/two" {
		t.Errorf("it belongs to %q", owner)
	}
}

func TestTwoSourcesDoNotFightOverAnObject(t *testing.T) {
	w := newWorld(t)
	w.repo.Commit(map[string]string{"one/a.yaml": configMap("a", "one"), "two/a.yaml": configMap("a", "two")})
	w.declare("one", "path: one")
	w.ready("one", "True", "", "")
	w.declare("two", "path: two")
	s := w.ready("two", "False", "ApplyFailed", "")
	if !strings.Contains(message(s), "belongs to source kube-system/one") || w.value("a") != "one" {
		t.Errorf("a is %q, and the message is %q", w.value("a"), message(s))
	}
}

func TestObjectsOfOtherClientsAreNotTakenOver(t *testing.T) {
	w := newWorld(t)
	w.setValue("a", "mine")
	w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one"), "b.yaml": configMap("b", "one")})
	w.declare("platform", "")
	s := w.ready("platform", "False", "ApplyFailed", "")
	if w.value("a") != "mine" || w.value("b") != "" || len(s.Status.Inventory) > 0 {
		t.Errorf("a is %q, b is %q, and the inventory is %q", w.value("a"), w.value("b"), s.Status.Inventory)
	}
	last := w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one", gitsource.AdoptAnnotation,
		gitsource.Enabled)})
	w.ready("platform", "True", "", last)
	w.wantValue("a", "one")
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

func TestADeletedSourceDeletesItsObjects(t *testing.T) {
	w := newWorld(t)
	w.cluster.Finalizing = func(id gitops.ObjectID) bool { return id.Name == "b" }
	w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one"), "b.yaml": configMap("b", "one"),
		"c.yaml": configMap("c", "one", gitsource.PruneAnnotation, gitsource.Disabled)})
	w.declare("platform", "")
	w.ready("platform", "True", "", "")
	w.cluster.Writes()
	remove := func() {
		t.Helper()
		err := w.client.Resource(resource).Namespace("kube-system").Delete(t.Context(), "platform",
			metav1.DeleteOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	remove()
	w.until("the finalizing object is being deleted", func() error {
		if w.cluster.Finish(configMapID("b")) {
			return nil
		}
		return errors.New("it is not")
	})
	gone := func() error {
		if w.source("platform") != nil {
			return errors.New("it exists")
		}
		return nil
	}
	w.until("the source is gone", gone)
	w.wantWrites("delete v1 ConfigMap default/a", "delete v1 ConfigMap default/b")
	if w.value("c") != "one" {
		t.Error("an object that is not pruned was deleted")
	}
	// Without prune its objects stay.
	w.repo.Commit(map[string]string{"d.yaml": configMap("d", "one")})
	w.declare("platform", "prune: false")
	w.ready("platform", "True", "", "")
	remove()
	w.until("the source is gone", gone)
	if w.value("d") != "one" {
		t.Error("objects of a source that does not prune were deleted")
	}
}

// A namespace that is being deleted takes the rights of the source's account with it. Its sources do not wait for them.
func TestASourceDoesNotKeepItsNamespace(t *testing.T) {
	w := newWorld(t)
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": "team"}}}
	in := w.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	if _, err := in.Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.cluster.Put(gitops.ObjectID{APIVersion: "v1", Kind: "Namespace", Name: "team"}, nil)
	w.repo.Commit(map[string]string{"a.yaml": configMap("a", "one")})
	w.declareIn("team", "apps", "")
	w.readyIn("team", "apps", "True", "", "")
	w.cluster.SetAllow(func(string, string, gitops.ObjectID) bool { return false })
	if err := in.Delete(t.Context(), "team", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	err := w.client.Resource(resource).Namespace("team").Delete(t.Context(), "apps", metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.until("the source is gone", func() error {
		if w.sourceIn("team", "apps") != nil {
			return errors.New("it exists")
		}
		return nil
	})
}

// A tenant's source acts with the rights of its own account.
func TestASourceHasTheRightsOfItsServiceAccount(t *testing.T) {
	w := newWorld(t)
	w.cluster.Put(gitops.ObjectID{APIVersion: "v1", Kind: "Namespace", Name: "shop"}, nil)
	w.cluster.SetAllow(func(account, _ string, id gitops.ObjectID) bool {
		return account == "kube-system/gitops" || account == "shop/deploy" && id.Namespace == "shop"
	})
	w.repo.Commit(map[string]string{
		"own/a.yaml":   configMap("a", "one"),
		"other/a.yaml": strings.Replace(configMap("a", "one"), "name: a\n", "name: a\n  namespace: kube-system\n", 1),
	})
	w.createNamespace("shop")
	w.declareIn("shop", "app", "path: own\nserviceAccount: deploy")
	w.readyIn("shop", "app", "True", "", "")
	if w.cluster.Live(gitops.ObjectID{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "a"}) == nil {
		t.Error("the object is not in the source's namespace")
	}
	w.declareIn("shop", "other", "path: other\nserviceAccount: deploy")
	s := w.readyIn("shop", "other", "False", "ApplyFailed", "")
	if !strings.Contains(message(s), "account shop/deploy cannot") {
		t.Errorf("the message is %q", message(s))
	}
	w.declareIn("shop", "app2", "path: own") // the namespace's default account may nothing
	w.readyIn("shop", "app2", "False", "ApplyFailed", "")
	w.declareIn("shop", "app3", "path: own\nserviceAccount: deploy\nsecret: credentials")
	s = w.readyIn("shop", "app3", "False", "SecretNotReadable", "")
	if !strings.Contains(message(s), "shop/credentials: it does not exist") {
		t.Errorf("the message is %q", message(s))
	}
}

func (w *world) createNamespace(name string) {
	w.t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": name}}}
	_, err := w.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).
		Create(w.t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestImmutableFieldsRecreateOnlyWhereDeclared(t *testing.T) {
	w := newWorld(t)
	w.cluster.Refuse = func(o, live *unstructured.Unstructured) error {
		if live == nil {
			return nil
		}
		was, _, _ := unstructured.NestedString(live.Object, "data", "value")
		if now, _, _ := unstructured.NestedString(o.Object, "data", "value"); was != now {
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
	p, err := c.Preview(t.Context(), s, []*gitops.Source{s})
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
