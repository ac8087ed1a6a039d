package apply

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver"
	"clusterctl/daemons/apiserver/admission"
	"clusterctl/daemons/apiserver/write"
	"clusterctl/daemons/config"
	"clusterctl/daemons/gitops"
	"clusterctl/daemons/gitops/gitopstest"
	"clusterctl/daemons/kinds"
	"clusterctl/daemons/run"
	"clusterctl/daemons/store/memory"
)

// backend is the project's API server over the store in memory.
type backend struct {
	*Cluster
	t      *testing.T
	client dynamic.Interface
}

// allowAll allows every request, also the impersonation of accounts.
type allowAll struct{}

// Authorize implements api.Authorizer.
func (allowAll) Authorize(context.Context, api.User, api.Request) (api.Decision, string, error) {
	return api.Allow, "", nil
}

// startServer starts an API server and returns the configuration of its clients.
func startServer(t *testing.T, rights api.Authorizer) *rest.Config {
	t.Helper()
	env := run.NewEnv(slog.New(slog.DiscardHandler))
	s := memory.New()
	t.Cleanup(s.Close)
	storage := apiserver.OpenStorage(s, "", kinds.All(), env.Log)
	mutators, validators, err := admission.All(config.DefaultAPIServer(), storage.Objects(), allowAll{}, env.Metrics)
	if err != nil {
		t.Fatal(err)
	}
	server, err := apiserver.New(apiserver.Options{
		Storage: storage, Env: env,
		Addresses: apiserver.Addresses{ServiceClusterIPRange: []string{"10.96.0.0/16"}},
		Access:    apiserver.Access{Authorizers: []api.Authorizer{rights}},
		Admission: apiserver.Admission{Mutators: mutators, Validators: validators,
			Quota: admission.NewQuota(storage.Objects()), External: &write.External{Authorizer: allowAll{}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	web := httptest.NewUnstartedServer(server)
	web.EnableHTTP2 = true
	web.StartTLS()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		web.CloseClientConnections()
		web.Close()
	})
	for deadline := time.Now().Add(3 * time.Minute); env.Health.Err(true) != nil; {
		if time.Now().After(deadline) {
			t.Fatal(env.Health.Err(true))
		}
		time.Sleep(5 * time.Millisecond)
	}
	return &rest.Config{Host: web.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

func newBackend(t *testing.T) gitopstest.Backend {
	t.Helper()
	config := startServer(t, allowAll{})
	return &backend{New(config), t, dynamic.NewForConfigOrDie(config)}
}

func (b *backend) resource(id gitops.ObjectID) dynamic.ResourceInterface {
	gv, err := schema.ParseGroupVersion(id.APIVersion)
	if err != nil {
		b.t.Fatal(err)
	}
	name := map[string]string{"ConfigMap": "configmaps", "Namespace": "namespaces"}[id.Kind]
	if id.Namespace == "" {
		return b.client.Resource(gv.WithResource(name))
	}
	return b.client.Resource(gv.WithResource(name)).Namespace(id.Namespace)
}

// Put implements gitopstest.Backend.
func (b *backend) Put(id gitops.ObjectID, change func(content map[string]any)) {
	b.t.Helper()
	o := b.Live(id)
	isNew := o == nil
	if isNew {
		o = &unstructured.Unstructured{Object: map[string]any{"apiVersion": id.APIVersion, "kind": id.Kind,
			"metadata": map[string]any{"name": id.Name, "namespace": id.Namespace}}}
	}
	change(o.Object)
	var err error
	if isNew {
		_, err = b.resource(id).Create(b.t.Context(), o, metav1.CreateOptions{FieldManager: "kubectl"})
	} else {
		_, err = b.resource(id).Update(b.t.Context(), o, metav1.UpdateOptions{FieldManager: "kubectl"})
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// Live implements gitopstest.Backend.
func (b *backend) Live(id gitops.ObjectID) *unstructured.Unstructured {
	b.t.Helper()
	o, err := b.resource(id).Get(b.t.Context(), id.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return o
}

// Proves P06.
func TestObjectsAreAppliedWithTheEngineOfApply(t *testing.T) { gitopstest.RunAppliers(t, newBackend) }

// A tenant who changes the account of a source again and again does not fill the memory.
func TestAppliersAreBounded(t *testing.T) {
	c := New(&rest.Config{Host: "http://127.0.0.1:1"})
	for i := range 2 * maxAppliers {
		if _, err := c.As("team", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.appliers) > maxAppliers {
		t.Errorf("%d appliers are kept", len(c.appliers))
	}
}
