package workload

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run/session"
	"clusterctl/provision/state"
)

var webhooks = schema.GroupVersionResource{
	Group:    "admissionregistration.k8s.io",
	Version:  "v1",
	Resource: "mutatingwebhookconfigurations",
}

type fakeMapper struct{ *meta.DefaultRESTMapper }

func (fakeMapper) Reset() {}

func newFakeLive(objects ...runtime.Object) (*Live, *fake.FakeDynamicClient) {
	client := fake.NewSimpleDynamicClientWithCustomListKinds(
		runtime.NewScheme(),
		map[schema.GroupVersionResource]string{
			pods:                                    "PodList",
			nodes:                                   "NodeList",
			{Version: "v1", Resource: "configmaps"}: "ConfigMapList",
			services:                                "ServiceList",
			webhooks:                                "MutatingWebhookConfigurationList",
		},
		objects...)
	m := fakeMapper{meta.NewDefaultRESTMapper([]schema.GroupVersion{webhooks.GroupVersion()})}
	for _, kind := range []string{"ConfigMap", "Service", "Pod"} {
		m.Add(schema.GroupVersionKind{Version: "v1", Kind: kind}, meta.RESTScopeNamespace)
	}
	for _, kind := range []string{"Namespace", "Node"} {
		m.Add(schema.GroupVersionKind{Version: "v1", Kind: kind}, meta.RESTScopeRoot)
	}
	m.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, meta.RESTScopeNamespace)
	m.Add(webhooks.GroupVersion().WithKind("MutatingWebhookConfiguration"), meta.RESTScopeRoot)
	m.Add(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		meta.RESTScopeRoot)
	return liveOver(&connection{dynamic: client, mapper: m}), client
}

func newItem(apiVersion, kind, namespace, name string, more map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{
		Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}},
	}
	if namespace != "" {
		o.SetNamespace(namespace)
	}
	for k, v := range more {
		o.Object[k] = v
	}
	return o
}

func newEndingPod(phase string) *unstructured.Unstructured {
	p := newItem("v1", "Pod", "default", "p", map[string]any{"spec": map[string]any{"nodeName": "n"},
		"status": map[string]any{"phase": phase}})
	_ = unstructured.SetNestedField(p.Object, "2026-01-01T00:00:00Z", "metadata", "deletionTimestamp")
	return p
}

// A drain waits until pods are deleted, because the kubelet sets the phase of an ended pod before it unmounts its
// volumes.
// Proves P07.
func TestDrainWaitsUntilTheObjectsOfEndedPodsAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, client := newFakeLive(newItem("v1", "Node", "", "n", nil), newEndingPod("Failed"))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- l.Drain(ctx, "n", func(string) {}) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("drained with a pod that is still there: %v", err)
		default:
		}
		if err := client.Tracker().Delete(pods, "default", "p"); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestDrainsHaveATimeLimit(t *testing.T) {
	for phase, fails := range map[string]bool{"Failed": false, "Succeeded": false, "Running": true} {
		synctest.Test(t, func(t *testing.T) {
			l, _ := newFakeLive(readyNode("True"), newEndingPod(phase))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			if err := l.Drain(ctx, "n", func(string) {}); (err != nil) != fails {
				t.Errorf("with a pod that is %s for good: %v", phase, err)
			}
		})
	}
}

func readyNode(status string) *unstructured.Unstructured {
	return newItem(
		"v1",
		"Node",
		"",
		"n",
		map[string]any{
			"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": status}}},
		},
	)
}

func newDeclared(address string, line int, o *unstructured.Unstructured) config.Object {
	return config.Object{Address: address, Content: o.Object, Source: config.Source{File: "app.hcl", Line: line}}
}

// A plan finds all objects that the API refuses. Objects that depend on others of the same plan are not reported.
// Proves P05.
func TestPlansNameAllRefusedObjects(t *testing.T) {
	l, client := newFakeLive()
	client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.PatchActionImpl)
		resource := a.GetResource().GroupResource()
		if len(p.PatchOptions.DryRun) == 0 {
			t.Errorf("%s %s was written", resource, p.Name)
		}
		switch {
		case p.Name == "bad":
			return true, nil, apierrors.NewBadRequest("data: must be text")
		case a.GetNamespace() == "fresh":
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "fresh")
		}
		return true, newItem("v1", "ConfigMap", a.GetNamespace(), p.Name, nil), nil
	})
	crd := newItem("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "gadgets.x.io",
		map[string]any{"spec": map[string]any{"group": "x.io", "names": map[string]any{"kind": "Gadget"}}})
	c := &config.Cluster{Name: "home", Objects: []config.Object{
		newDeclared("object.good", 1, newItem("v1", "ConfigMap", "default", "good", nil)),
		newDeclared("object.crd", 2, crd),
		newDeclared("object.gadget", 3, newItem("x.io/v1", "Gadget", "default", "g", nil)),
		newDeclared("object.fresh", 4, newItem("v1", "ConfigMap", "fresh", "good", nil)),
	}}
	entries, _, err := l.Plan(t.Context(), c, nil)
	if err != nil {
		t.Fatalf("refused what will do: %v", err)
	}
	for _, e := range entries {
		if e.Action != plan.Create {
			t.Errorf("%+v is not created", e)
		}
	}
	c.Objects = append(c.Objects,
		newDeclared("object.bad", 5, newItem("v1", "ConfigMap", "default", "bad", nil)),
		newDeclared("object.widget", 6, newItem("x.io/v1", "Widget", "default", "w", nil)))
	entries, _, err = l.Plan(t.Context(), c, nil)
	var refused session.RefusedError
	if !errors.As(err, &refused) || len(refused.List) != 2 {
		t.Fatalf("got %v, want two refusals", err)
	}
	for _, e := range entries {
		if want := e.Address == "object.bad" || e.Address == "object.widget"; want != (e.Action == plan.Refused) {
			t.Errorf("in the plan there is %+v", e)
		}
	}
	for _, want := range []string{"object.bad (app.hcl:5)", "data: must be text", "object.widget " +
		"(app.hcl:6)", "no such kind in x.io/v1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

// An object that another client created is neither changed nor recorded without an import block. Objects that were
// applied before, and those that the cluster creates by itself, are taken over.
// Proves P07.
func TestForeignObjectsAreAdoptedOnlyIfDeclared(t *testing.T) {
	by := func(name, manager, subresource string) *unstructured.Unstructured {
		o := newItem("v1", "ConfigMap", "default", name, map[string]any{"data": map[string]any{"is": "theirs"}})
		o.SetManagedFields(
			[]metav1.ManagedFieldsEntry{
				{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: subresource},
			},
		)
		return o
	}
	l, client := newFakeLive(by("theirs", "helm", ""), by("status", "kubelet", "status"),
		by("cluster", "kube-controller-manager", ""), by("before", "kubectl-create", ""),
		newOwnObject("v1", "ConfigMap", "default", "ours"))
	var written []string
	client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.PatchActionImpl)
		if len(p.PatchOptions.DryRun) == 0 && a.GetNamespace() == "default" {
			written = append(written, p.Name)
		}
		return true, newItem("v1", "ConfigMap", a.GetNamespace(), p.Name,
			map[string]any{"data": map[string]any{"is": "ours"}}), nil
	})
	c := &config.Cluster{Name: "home"}
	for i, name := range []string{"theirs", "status", "cluster", "before", "ours"} {
		c.Objects = append(c.Objects, newDeclared("object.v1.ConfigMap."+name, i+1, newItem("v1", "ConfigMap",
			"default", name, map[string]any{"data": map[string]any{"is": "ours"}})))
	}
	before := []state.Object{
		{
			APIVersion: "v1",
			Kind:       "ConfigMap",
			Namespace:  "default",
			Name:       "before",
			Address:    "object.v1.ConfigMap.before",
		},
	}
	entries, _, err := l.Plan(t.Context(), c, before)
	var refused session.RefusedError
	if !errors.As(err, &refused) || len(refused.List) != 2 {
		t.Fatalf("got %v, want two refusals", err)
	}
	for _, e := range entries {
		if want := strings.HasSuffix(e.Name, "/theirs") ||
			strings.HasSuffix(e.Name, "/status"); want != (e.Action == plan.Refused) {
			t.Errorf("in the plan there is %+v", e)
		}
		if strings.HasSuffix(e.Name, "/before") && !strings.Contains(e.Note, "taken over from kubectl-create") {
			t.Errorf("an object that another client has recreated is not reported as taken over: %+v", e)
		}
	}
	if want := `made by helm, and was not applied from here. To take it over, write import { to = "object.v1.ConfigMap.theirs" }`; !strings.Contains(
		err.Error(),
		want,
	) {
		t.Errorf("%q does not say %q", err, want)
	}
	applied, err := l.Apply(t.Context(), c, before, func(plan.Object) {})
	slices.Sort(written)
	if !errors.As(err, &refused) || !slices.Equal(written, []string{"before", "cluster", "ours"}) {
		t.Errorf("%q were written: %v", written, err)
	}
	if slices.ContainsFunc(applied, func(o state.Object) bool { return o.Name == "theirs" }) {
		t.Error("what was refused is remembered as applied, and would be removed with its block")
	}
	c.Imports = []config.Import{{To: "object.v1.ConfigMap.theirs"}, {To: "object.v1.ConfigMap.status"}}
	if entries, _, err = l.Plan(t.Context(), c, before); err != nil ||
		!strings.Contains(entries[0].Note, "taken over from helm") {
		t.Errorf("with import blocks: %v, %+v", err, entries)
	}
}

func TestErrorsOfAnUnhealthyAPIAreNotRefusals(t *testing.T) {
	for _, err := range []error{errors.New("connection refused"), apierrors.NewUnauthorized("x"),
		apierrors.NewTooManyRequests("x", 1), apierrors.NewInternalError(errors.New("x")),
		apierrors.NewServiceUnavailable("x"), nil} {
		if isRefusal(err) {
			t.Errorf("%v is taken for a refusal", err)
		}
	}
	if err := (writeError{apierrors.NewInternalError(errors.New("failed calling webhook"))}); !isRefusal(err) ||
		!apierrors.IsInternalError(err) {
		t.Error("a write that fails for its object alone is not taken for a refusal")
	}
}

// newHooked returns an API with a failing webhook for one object.
func newHooked(t *testing.T) (*Live, *[]string) {
	l, client := newFakeLive(newOwnObject("v1", "ConfigMap", "default", "old"))
	var written []string
	client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.PatchActionImpl)
		if p.Name == "hooked" {
			return true, nil, apierrors.NewInternalError(
				errors.New(`failed calling webhook "x.io": connection refused`),
			)
		}
		if len(p.PatchOptions.DryRun) == 0 {
			written = append(written, p.Name)
		}
		return true, newItem("v1", "ConfigMap", a.GetNamespace(), p.Name, nil), nil
	})
	return l, &written
}

func newOwnObject(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	o := newItem(apiVersion, kind, namespace, name, nil)
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: Manager, Operation: metav1.ManagedFieldsOperationApply}})
	return o
}

// An object that a failing webhook keeps from being written is named, and the others are applied.
// Proves P05.
func TestObjectsBlockedByAWebhookAreNamedAndTheOthersApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, written := newHooked(t)
		c := &config.Cluster{Name: "home", Objects: []config.Object{
			newDeclared("object.first", 1, newItem("v1", "ConfigMap", "default", "first", nil)),
			newDeclared("object.hooked", 2, newItem("v1", "ConfigMap", "default", "hooked", nil)),
			newDeclared("object.last", 3, newItem("v1", "ConfigMap", "default", "last", nil)),
		}}
		before := []state.Object{
			{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: "old", Address: "object.old"},
		}
		entries, _, err := l.Plan(t.Context(), c, before)
		var refused session.RefusedError
		if !errors.As(err, &refused) || len(refused.List) != 1 ||
			!strings.Contains(err.Error(), "object.hooked (app.hcl:2)") ||
			!strings.Contains(err.Error(), "failed calling webhook") {
			t.Fatalf("planning: %v", err)
		}
		p := &plan.Plan{Objects: entries}
		if text := p.Summary(); !strings.Contains(text, "1 refused by the API") ||
			strings.Contains(text, "No changes") {
			t.Errorf("the plan says %q", text)
		}
		var events []string
		applied, err := l.Apply(t.Context(), c, before,
			func(o plan.Object) { events = append(events, o.Name+" "+o.Action) })
		if !errors.As(err, &refused) || len(refused.List) != 1 {
			t.Errorf("applying: %v", err)
		}
		slices.Sort(*written)
		if !slices.Contains(*written, "first") || !slices.Contains(*written, "last") {
			t.Errorf("written are %v", *written)
		}
		if !slices.Contains(events, "default/hooked refused") || !slices.Contains(events, "default/old remove") {
			t.Errorf("said was %v", events)
		}
		if len(applied) != 4 { // with the DNS service; the state also has refused objects, which may exist from before
			t.Errorf("applied are %v", applied)
		}
	})
}

// An object that was applied and is no longer declared is deleted, even if another client changed its labels. An object
// that another client has recreated stays, and the plan reports this.
// Proves P05.
func TestObjectsPlannedForRemovalAreRemoved(t *testing.T) {
	charts := newOwnObject("v1", "ConfigMap", "default", "charts")
	charts.SetLabels(map[string]string{ManagedByLabel: "Helm"})
	theirs := newItem("v1", "ConfigMap", "default", "theirs", nil)
	theirs.SetManagedFields(
		[]metav1.ManagedFieldsEntry{{Manager: "kubectl-create", Operation: metav1.ManagedFieldsOperationUpdate}},
	)
	going := newOwnObject("v1", "ConfigMap", "default", "going")
	_ = unstructured.SetNestedField(going.Object, "2026-01-01T00:00:00Z", "metadata", "deletionTimestamp")
	going.SetFinalizers([]string{"x.io/wait"})
	l, client := newFakeLive(charts, theirs, going)
	client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, newItem("v1", "ConfigMap", a.GetNamespace(), a.(clienttesting.PatchActionImpl).Name, nil), nil
	})
	var before []state.Object
	for _, name := range []string{"charts", "theirs", "going"} {
		before = append(
			before,
			state.Object{
				APIVersion: "v1",
				Kind:       "ConfigMap",
				Namespace:  "default",
				Name:       name,
				Address:    "object." + name,
			},
		)
	}
	c := &config.Cluster{Name: "home"}
	entries, ended, err := l.Plan(t.Context(), c, before)
	if err != nil {
		t.Fatal(err)
	}
	p := &plan.Plan{Objects: entries}
	if _, n := p.Count(plan.Remove); n != 1 || len(ended) != 1 || ended[0].Name != "theirs" {
		t.Errorf("the plan removes %d and forgets %v: %+v", n, ended, entries)
	}
	var out strings.Builder
	if err := p.Print(&out, plan.Style{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ConfigMap default/theirs no longer declared, and stays: it was created again by " +
		"kubectl-create", "ConfigMap default/going no longer declared, and going already: it waits for x.io/wait"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &out)
		}
	}
	var removed []string
	if _, err := l.Apply(t.Context(), c, before, func(o plan.Object) {
		if o.Action == plan.Remove {
			removed = append(removed, o.Name)
		}
	}); err != nil || !slices.Equal(removed, []string{"default/charts"}) {
		t.Errorf("removed %v, %v", removed, err)
	}
}

// A declared object that is being deleted counts as missing: the plan reports that it is created, and apply waits until
// the old one is gone.
// Proves P05.
func TestObjectsBeingDeletedAreRecreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		going := newOwnObject("v1", "Namespace", "", "shop")
		_ = unstructured.SetNestedField(going.Object, "2026-01-01T00:00:00Z", "metadata", "deletionTimestamp")
		going.SetFinalizers([]string{"x.io/wait"})
		l, client := newFakeLive(going)
		spaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
		var written []string
		client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			p := a.(clienttesting.PatchActionImpl)
			_, err := client.Tracker().Get(spaces, "", "shop")
			if p.Name == "in" && err == nil {
				full := apierrors.NewForbidden(a.GetResource().GroupResource(), p.Name, errors.New(
					"unable to create new content in namespace shop because it is being terminated"))
				full.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
				return true, nil, full
			}
			if len(p.PatchOptions.DryRun) == 0 {
				if p.Name == "shop" && err == nil {
					t.Error("the namespace that is being deleted was written")
				}
				written = append(written, p.Name)
			}
			return true, newItem("v1", "ConfigMap", a.GetNamespace(), p.Name, nil), nil
		})
		c := &config.Cluster{Name: "home", Objects: []config.Object{
			newDeclared("object.shop", 1, newItem("v1", "Namespace", "", "shop", nil)),
			newDeclared("object.in", 2, newItem("v1", "ConfigMap", "shop", "in", nil)),
		}}
		before := []state.Object{{APIVersion: "v1", Kind: "Namespace", Name: "shop", Address: "object.shop"}}
		entries, _, err := l.Plan(t.Context(), c, before)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"object.shop create the one that is there is being deleted: it waits for " +
			"x.io/wait", "object.in create "} {
			if got := entries[i].Address + " " + entries[i].Action + " " + entries[i].Note; got != want {
				t.Errorf("entry %d is %q, want %q", i, got, want)
			}
		}
		done := make(chan error, 1)
		go func() {
			_, err := l.Apply(t.Context(), c, before, func(plan.Object) {})
			done <- err
		}()
		time.Sleep(5 * time.Second)
		if err := client.Tracker().Delete(spaces, "", "shop"); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil || !slices.Contains(written, "shop") || !slices.Contains(written, "in") {
			t.Errorf("written are %v, %v", written, err)
		}
	})
}

// A drain does not wait for pods that no kubelet ends: those of a node that is gone, or whose kubelet does not report.
// Proves P07.
func TestDrainsDoNotWaitForPodsOfDeletedNodes(t *testing.T) {
	for status, waits := range map[string]bool{"Unknown": false, "False": true, "True": true} {
		synctest.Test(t, func(t *testing.T) {
			l, _ := newFakeLive(readyNode(status), newEndingPod("Running"))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := l.Drain(ctx, "n", func(string) {}); (err != nil) != waits {
				t.Errorf("of a node that is ready: %s, %v", status, err)
			}
		})
	}
}
