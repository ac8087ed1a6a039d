package workload

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"clusterctl/hcl/config"
	"clusterctl/provision/plan"
	"clusterctl/provision/run"
)

type mapper struct{ *meta.DefaultRESTMapper }

func (mapper) Reset() {}

func fakeLive(objects ...runtime.Object) (*Live, *fake.FakeDynamicClient) {
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{pods: "PodList", nodes: "NodeList"}, objects...)
	m := mapper{meta.NewDefaultRESTMapper(nil)}
	for _, kind := range []string{"ConfigMap", "Service", "Pod"} {
		m.Add(schema.GroupVersionKind{Version: "v1", Kind: kind}, meta.RESTScopeNamespace)
	}
	for _, kind := range []string{"Namespace", "Node"} {
		m.Add(schema.GroupVersionKind{Version: "v1", Kind: kind}, meta.RESTScopeRoot)
	}
	m.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, meta.RESTScopeNamespace)
	m.Add(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, meta.RESTScopeRoot)
	return &Live{dynamic: client, mapper: m}, client
}

func item(apiVersion, kind, namespace, name string, more map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}}
	if namespace != "" {
		o.SetNamespace(namespace)
	}
	for k, v := range more {
		o.Object[k] = v
	}
	return o
}

func ending(phase string) *unstructured.Unstructured {
	p := item("v1", "Pod", "default", "p", map[string]any{"status": map[string]any{"phase": phase}})
	_ = unstructured.SetNestedField(p.Object, "2026-01-01T00:00:00Z", "metadata", "deletionTimestamp")
	return p
}

// P07: the kubelet writes that a pod has ended before it unmounts its volumes.
func TestDrainWaitsUntilTheObjectsOfEndedPodsAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, client := fakeLive(item("v1", "Node", "", "n", nil), ending("Failed"))
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

func TestDrainIsBounded(t *testing.T) {
	for phase, fails := range map[string]bool{"Failed": false, "Succeeded": false, "Running": true} {
		synctest.Test(t, func(t *testing.T) {
			l, _ := fakeLive(item("v1", "Node", "", "n", nil), ending(phase))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			if err := l.Drain(ctx, "n", func(string) {}); (err != nil) != fails {
				t.Errorf("with a pod that is %s for good: %v", phase, err)
			}
		})
	}
}

func declared(address string, line int, o *unstructured.Unstructured) config.Object {
	return config.Object{Address: address, Content: o.Object, Source: config.Source{File: "app.hcl", Line: line}}
}

// P05: all that the API refuses is known while planning; what waits for the same plan is not refused.
func TestPlanNamesEverythingThatTheAPIRefuses(t *testing.T) {
	l, client := fakeLive()
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
		return true, item("v1", "ConfigMap", a.GetNamespace(), p.Name, nil), nil
	})
	crd := item("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "gadgets.x.io", map[string]any{"spec": map[string]any{"group": "x.io", "names": map[string]any{"kind": "Gadget"}}})
	c := &config.Cluster{Name: "home", Objects: []config.Object{
		declared("object.good", 1, item("v1", "ConfigMap", "default", "good", nil)),
		declared("object.crd", 2, crd),
		declared("object.gadget", 3, item("x.io/v1", "Gadget", "default", "g", nil)),
		declared("object.fresh", 4, item("v1", "ConfigMap", "fresh", "good", nil)),
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
		declared("object.bad", 5, item("v1", "ConfigMap", "default", "bad", nil)),
		declared("object.widget", 6, item("x.io/v1", "Widget", "default", "w", nil)))
	_, _, err = l.Plan(t.Context(), c, nil)
	var refused run.Refused
	if !errors.As(err, &refused) || len(refused) != 2 {
		t.Fatalf("got %v, want two refusals", err)
	}
	for _, want := range []string{"object.bad (app.hcl:5)", "data: must be text", "object.widget (app.hcl:6)", "no such kind in x.io/v1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

func TestAnAPIThatIsNotWellRefusesNothing(t *testing.T) {
	for _, err := range []error{errors.New("connection refused"), apierrors.NewUnauthorized("x"), apierrors.NewTooManyRequests("x", 1), apierrors.NewInternalError(errors.New("x")), apierrors.NewServiceUnavailable("x"), nil} {
		if refuses(err) {
			t.Errorf("%v is taken for a refusal", err)
		}
	}
}
