package gitops_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/config/gitsource"
	"clusterctl/daemons/gitops"
)

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
	isGone := func() error {
		if w.source("platform") != nil {
			return errors.New("it exists")
		}
		return nil
	}
	w.until("the source is gone", isGone)
	w.wantWrites("delete v1 ConfigMap default/a", "delete v1 ConfigMap default/b")
	if w.value("c") != "one" {
		t.Error("an object that is not pruned was deleted")
	}
	// Without prune its objects stay.
	w.repo.Commit(map[string]string{"d.yaml": configMap("d", "one")})
	w.declare("platform", "prune: false")
	w.ready("platform", "True", "", "")
	remove()
	w.until("the source is gone", isGone)
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
